"""What is noted of a request belongs to its task alone."""

import asyncio
import contextvars
import time

import pytest

from tasks.serve import request_context


def test_each_task_notes_its_own() -> None:
    async def one(number: int) -> request_context.RequestContext:
        start = request_context.begin()
        await asyncio.sleep(0)
        noted = request_context.current()
        noted.id, noted.model, noted.rows = str(number), "tiny", number
        return start

    async def play() -> list[request_context.RequestContext]:
        return await asyncio.gather(*(one(number) for number in range(3)))

    assert [(each.id, each.rows, each.model) for each in asyncio.run(play())] == [
        ("0", 0, "tiny"), ("1", 1, "tiny"), ("2", 2, "tiny"),
    ]  # fmt: skip


def test_outside_of_a_request_what_is_noted_is_nobodys() -> None:
    def outside() -> None:
        request_context.current().rows = 3
        assert request_context.current().rows == 0

    contextvars.Context().run(outside)


def test_the_nearest_deadline_counts() -> None:
    start = request_context.RequestContext()
    assert start.until(7.0, 5.0) == 7.0
    before = time.monotonic()
    assert before + 5 <= start.until(None, 5.0) <= time.monotonic() + 5
    start.deadline = 6.0
    assert [start.until(own, 5.0) for own in (7.0, 3.0, None)] == [6.0, 3.0, 6.0]


@pytest.mark.parametrize(("key", "shown"), [("r7", "r7"), ("a\r\nb", ""), ("é", ""), ("x" * 129, ""), ("", "")])
def test_only_an_id_that_fits_a_header_is_shown(key: str, shown: str) -> None:
    assert request_context.RequestContext(id=key).shown_id == shown
