"""Quick calls are made at once; slow ones queue, are made together, and do not fail each other."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.inference.loaded_model import Prediction
from models.serving.http_errors import RequestError
from tasks.serve.batcher import MOST_ROWS, DynamicBatcher

SOON = 30.0


@dataclass(eq=False)
class Model:
    """Doubles x, notes each batch, and can be held; a 13 is bad luck."""

    project: str = "tiny"
    version: str = "1"
    call_ms: float = 1.0
    preparation: Any = field(default_factory=lambda: SimpleNamespace(kind="table"))
    batches: list[int] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def answer(self, feed: Any) -> Prediction:
        self.began.set()
        assert self.gate.wait(SOON)
        self.batches.append(len(feed["x"]))
        if 13.0 in feed["x"]:
            raise ValueError("13")
        outputs = {"twice": feed["x"] * 2, "name": feed["x"].astype(object)}
        return Prediction(self.project, self.version, outputs, row_s=1 / len(self.batches))


def feed(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array(values, np.float64)}


def later(seconds: float = SOON) -> float:
    return time.monotonic() + seconds


async def held(engine: DynamicBatcher, model: Model) -> asyncio.Task[Prediction]:
    """A call that is under way until the gate opens."""
    model.gate.clear()
    first = asyncio.ensure_future(engine.answer(model, feed(0.0), later()))  # type: ignore[arg-type]
    await asyncio.to_thread(model.began.wait, SOON)
    return first


async def queued(engine: DynamicBatcher, calls: int) -> None:
    """Until so many calls wait: each queues a turn of the loop after it began."""
    async with asyncio.timeout(SOON):
        while engine.waiting < calls:
            await asyncio.sleep(0)


def test_a_quick_call_is_made_in_the_loop() -> None:
    engine, model = DynamicBatcher(), Model(call_ms=0.1)
    asyncio.run(engine.answer(model, feed(1.0), later()))  # type: ignore[arg-type]
    assert (model.batches, engine._thread) == ([1], None)


def test_quick_calls_of_one_turn_are_one_batch_of_a_version_and_do_not_fail_each_other() -> None:
    model, other = Model(call_ms=0.1), Model(call_ms=0.1, version="2")
    calls = [(model, 1.0), (other, 3.0), (model, 2.0), (other, 13.0)]

    async def play() -> list[Any]:
        asked = [engine.answer(one, feed(x), later()) for one, x in calls]  # type: ignore[arg-type]
        late = engine.answer(model, feed(4.0), later(-1))  # type: ignore[arg-type]
        many = [engine.answer(model, feed(*[5.0] * 40), later()) for _ in range(2)]  # type: ignore[arg-type]
        return await asyncio.gather(*asked, late, *many, return_exceptions=True)

    engine = DynamicBatcher()
    one, three, two, unlucky, late, *_ = asyncio.run(play())
    assert [answer.outputs["twice"].tolist() for answer in (one, three, two)] == [[2.0], [6.0], [4.0]]
    assert (type(unlucky), late.status) == (ValueError, 504)
    assert (model.batches, other.batches, engine._thread) == ([42, 40], [2, 1, 1], None)


def test_a_quick_call_that_nothing_joins_lets_the_next_ones_go_at_once() -> None:
    async def play() -> None:
        for _ in range(3):
            await engine.answer(model, feed(1.0), later())  # type: ignore[arg-type]
        call = engine.answer(model, feed(1.0), later())  # type: ignore[arg-type]
        with pytest.raises(StopIteration):  # it has its answer without a turn of the loop
            call.send(None)

    engine, model = DynamicBatcher(), Model(call_ms=0.1)
    asyncio.run(play())
    assert model.batches == [1, 1, 1, 1]


@pytest.mark.parametrize("case", [{"call_ms": 0.6}, {"call_ms": 0.1, "rows": 65}, {"call_ms": 0.1, "text": True}])
def test_what_may_take_long_does_not_hold_the_loop(case: dict[str, Any]) -> None:
    engine, model = DynamicBatcher(), Model(call_ms=case["call_ms"])
    model.preparation.kind = "text" if case.get("text") else "table"
    asyncio.run(engine.answer(model, feed(*[1.0] * case.get("rows", 1)), later()))  # type: ignore[arg-type]
    assert engine._thread is not None
    engine.close()


@given(st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=5), min_size=1, max_size=6))
def test_what_queued_meanwhile_is_one_batch_and_each_gets_its_own(asked: list[list[float]]) -> None:
    async def play() -> list[Prediction]:
        first = await held(engine, model)
        rest = [asyncio.ensure_future(engine.answer(model, feed(*one), later())) for one in asked]  # type: ignore[arg-type]
        await queued(engine, len(asked))
        model.gate.set()
        await first
        return await asyncio.gather(*rest)

    engine, model = DynamicBatcher(), Model()
    answers = asyncio.run(play())
    engine.close()
    assert model.batches == [1, sum(map(len, asked))]
    assert [answer.outputs["twice"].tolist() for answer in answers] == [[2 * x for x in one] for one in asked]
    assert [answer.outputs["name"].tolist() for answer in answers] == asked
    assert {answer.row_s for answer in answers} == {1 / 2}, "each has what its batch took for a row"


def test_a_batch_is_bounded_and_of_one_version() -> None:
    async def play() -> None:
        first = await held(engine, model)
        big, other = feed(*[1.0] * (MOST_ROWS - 1)), Model(version="2", batches=model.batches)
        rest = [
            engine.answer(one, asked, later()) for one, asked in ((model, big), (model, feed(1, 2)), (other, feed(3)))
        ]  # type: ignore[arg-type]
        tasks = [asyncio.ensure_future(one) for one in rest]
        await queued(engine, 3)
        model.gate.set()
        await first
        assert [(await task).version for task in tasks] == ["1", "1", "2"]

    engine, model = DynamicBatcher(), Model()
    asyncio.run(play())
    engine.close()
    assert model.batches == [1, MOST_ROWS - 1, 2, 1]


def test_the_error_of_one_is_not_its_neighbours() -> None:
    async def play() -> list[Any]:
        first = await held(engine, model)
        rest = [asyncio.ensure_future(engine.answer(model, feed(x), later())) for x in (1.0, 13.0, 2.0)]  # type: ignore[arg-type]
        await queued(engine, 3)
        model.gate.set()
        await first
        return await asyncio.gather(*rest, return_exceptions=True)

    engine, model = DynamicBatcher(), Model()
    one, unlucky, two = asyncio.run(play())
    engine.close()
    assert (one.outputs["twice"], two.outputs["twice"]) == ([2.0], [4.0])
    assert isinstance(unlucky, ValueError)


def test_models_take_turns() -> None:
    order: list[str] = []

    class Noting(Model):
        def answer(self, feed: Any) -> Prediction:
            order.append(self.project)
            return super().answer(feed)

    async def play() -> None:
        busy, other = Noting("busy"), Noting("other")
        first = await held(engine, busy)
        rows = [1.0] * (MOST_ROWS - 1)
        many = [asyncio.ensure_future(engine.answer(busy, feed(*rows), later())) for _ in range(3)]  # type: ignore[arg-type]
        await queued(engine, 3)
        one = asyncio.ensure_future(engine.answer(other, feed(1.0), later()))  # type: ignore[arg-type]
        await queued(engine, 4)
        busy.gate.set()
        await asyncio.gather(first, one, *many)

    engine = DynamicBatcher()
    asyncio.run(play())
    engine.close()
    assert order == ["busy", "busy", "other", "busy", "busy"]


def test_a_full_queue_refuses_and_says_when_to_ask_again() -> None:
    async def play() -> None:
        first = await held(engine, model)
        second = asyncio.ensure_future(engine.answer(model, feed(1.0), later()))  # type: ignore[arg-type]
        await queued(engine, 1)
        with pytest.raises(RequestError, match="wait already") as refused:
            await engine.answer(model, feed(2.0), later())  # type: ignore[arg-type]
        assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
        model.gate.set()
        await asyncio.gather(first, second)

    engine, model = DynamicBatcher(most_waiting=1), Model()
    asyncio.run(play())
    engine.close()


@pytest.mark.parametrize("call_ms", [0.1, 1.0])
def test_a_deadline_that_passed_is_said_and_the_call_is_not_made(call_ms: float) -> None:
    async def play() -> None:
        with pytest.raises(RequestError) as refused:
            await engine.answer(model, feed(1.0), later(-1))  # type: ignore[arg-type]
        assert refused.value.status == 504

    engine, model = DynamicBatcher(), Model(call_ms=call_ms)
    asyncio.run(play())
    engine.close()
    assert model.batches == []


def test_a_deadline_passes_while_another_call_takes_long() -> None:
    async def play() -> None:
        first = await held(engine, model)
        with pytest.raises(RequestError, match="deadline"):
            await engine.answer(model, feed(1.0), later(0.01))  # type: ignore[arg-type]
        model.gate.set()
        await first

    engine, model = DynamicBatcher(), Model()
    asyncio.run(play())
    engine.close()
    assert model.batches == [1]


def test_what_queues_is_answered_before_the_end_and_nothing_after_it() -> None:
    async def play() -> None:
        first = await held(engine, model)
        second = asyncio.ensure_future(engine.answer(model, feed(1.0), later()))  # type: ignore[arg-type]
        await queued(engine, 1)
        closing = asyncio.ensure_future(asyncio.to_thread(engine.close))
        model.gate.set()
        await asyncio.gather(first, second, closing)
        with pytest.raises(RequestError, match="ending"):
            await engine.answer(model, feed(1.0), later())  # type: ignore[arg-type]

    engine, model = DynamicBatcher(), Model()
    asyncio.run(play())


def test_a_call_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        first = await held(engine, model)
        assert not engine.is_stuck
        monkeypatch.setattr("tasks.serve.batcher.STUCK_S", -1.0)
        assert engine.is_stuck
        monkeypatch.undo()
        model.gate.set()
        await first

    engine, model = DynamicBatcher(), Model()
    asyncio.run(play())
    engine.close()
    assert not engine.is_stuck
