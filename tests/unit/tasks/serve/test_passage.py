"""What is noted of a request belongs to its task alone."""

import asyncio
import contextvars
import time

import pytest

from tasks.serve import passage


def test_each_task_notes_its_own() -> None:
    async def one(number: int) -> passage.Passage:
        begun = passage.begin()
        await asyncio.sleep(0)
        passage.note(str(number), "tiny", "1")
        passage.note_rows(number)
        return begun

    async def play() -> list[passage.Passage]:
        return await asyncio.gather(*(one(number) for number in range(3)))

    assert [(each.id, each.rows, each.model) for each in asyncio.run(play())] == [
        ("0", 0, "tiny"), ("1", 1, "tiny"), ("2", 2, "tiny"),
    ]  # fmt: skip


def test_outside_of_a_request_nothing_is_noted() -> None:
    def outside() -> float:
        passage.note("1", "tiny", "1")
        passage.note_rows(3)
        return passage.deadline(None, 5.0)

    assert contextvars.Context().run(outside) == pytest.approx(time.monotonic() + 5, abs=1)


def test_the_nearest_deadline_counts() -> None:
    def inside() -> list[float]:
        begun = passage.begin()
        found = [passage.deadline(7.0, 5.0)]
        begun.deadline = 6.0
        return [*found, passage.deadline(7.0, 5.0), passage.deadline(3.0, 5.0), passage.deadline(None, 5.0)]

    assert contextvars.Context().run(inside) == [7.0, 6.0, 3.0, 6.0]


@pytest.mark.parametrize(("key", "shown"), [("r7", "r7"), ("a\r\nb", ""), ("é", ""), ("x" * 129, ""), ("", "")])
def test_only_an_id_that_fits_a_header_is_shown(key: str, shown: str) -> None:
    assert passage.Passage(id=key).shown_id == shown
