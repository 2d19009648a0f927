"""A line of JSON for what is worth one; ordinary requests are few of many."""

import logging
import logging.config

import pytest

from tasks.host.logs import JsonLines, Repeated
from tasks.serve import logs
from tasks.serve.logs import ORDINARY_PER_S, REFUSED_PER_S, SLOW_S, RequestLog
from tasks.serve.request_context import RequestContext


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    return now


def passed(
    caplog: pytest.LogCaptureFixture, log: RequestLog, times: int, seconds: float = 0.001, **given: object
) -> list:
    caplog.clear()
    with caplog.at_level(logging.INFO, "loopline.serve.requests"):
        for _ in range(times):
            log.passed(
                RequestContext(**{"model": "tiny", "version": "1", "status": 200, **given}),
                seconds,
                "POST /invocations",
            )  # type: ignore[arg-type]
    return [record.fields for record in caplog.records]  # type: ignore[attr-defined]


def test_some_of_the_ordinary_ones_a_second_and_how_many_were_passed_over(caplog, clock) -> None:
    log = RequestLog()
    assert len(passed(caplog, log, 1000)) == ORDINARY_PER_S
    clock[0] += 1
    (line,) = passed(caplog, log, 1, id="r7", rows=2)
    assert line == {
        "request": "POST /invocations", "id": "r7", "model": "tiny", "version": "1", "status": 200, "ms": 1.0,
        "rows": 2, "passed_over": 1000 - ORDINARY_PER_S,
    }  # fmt: skip


def test_refusals_have_their_own_measure_and_errors_of_ours_none(caplog, clock) -> None:
    log = RequestLog()
    assert len(passed(caplog, log, 1000, status=401, model="")) == REFUSED_PER_S
    assert len(passed(caplog, log, 100, status=500)) == 100
    assert len(passed(caplog, log, 100, SLOW_S)) == 100
    assert len(passed(caplog, log, 1000)) == ORDINARY_PER_S


def test_who_asks_how_the_server_is_leaves_no_line(caplog, clock) -> None:
    assert passed(caplog, RequestLog(), 3, model="") == []


def test_the_configuration_is_one_that_python_takes() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logging.config.dictConfig(logs.config())
        assert isinstance(root.handlers[0].formatter, JsonLines)
        of_uvicorn = logging.getLogger("uvicorn.error")
        said = [("Child process [7] died", logging.INFO), ("Shutting down", logging.INFO), ("broken", logging.ERROR)]
        records = [logging.LogRecord("uvicorn.error", level, "f", 1, words, (), None) for words, level in said]
        assert [bool(of_uvicorn.filter(record)) for record in records] == [True, False, True]
        assert (records[0].levelname, of_uvicorn.isEnabledFor(logging.INFO)) == ("WARNING", True)
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def test_trouble_that_comes_again_and_again_is_a_line_a_minute(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    trouble = Repeated(logging.getLogger("loopline.serve"))
    for after_s, where, why in ((0, "a", "x"), (1, "a", "y"), (0, "b", "z"), (1, "a", "x"), (59, "a", "w")):
        clock[0] += after_s
        trouble.log(logging.ERROR, where, why)
    assert [record.getMessage() for record in caplog.records] == ["a: x", "b: z", "a: w"]
    assert [record.fields for record in caplog.records] == [{}, {}, {"passed_over": 2}]  # type: ignore[attr-defined]
