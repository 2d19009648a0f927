"""The lines that a loop recorded become its steps, trials, curves and log, in one go or bit by bit."""

from __future__ import annotations

from typing import Any

import pytest

from models.report.loop_progress import LOG_LINES, LoopProgress


def log(step: str, state: str, time_s: float, text: str = "", count: int = 0, total: int = 0) -> dict[str, Any]:
    fields = {"step": step, "state": state, "text": text, "count": count, "total": total}
    return {"op": "log", "run": "loop", "at_ms": 1000 * time_s, **fields}


def metrics(run: str, epoch: int, **values: float) -> dict[str, Any]:
    return {"op": "metrics", "run": run, "step": epoch, "at_ms": 0, "metrics": values}


LINES = [
    log("ingest", "done", 1),
    log("search", "run", 2),
    {"op": "run", "run": "trial-0", "name": "t", "tags": {}, "parent": "loop", "at_ms": 2000},
    {"op": "params", "run": "trial-0", "params": {"train.lr": "0.1"}},
    metrics("trial-0", 1, train_loss=0.9, val_auc=0.7, val_auc_se=0.02, lr=0.1, samples_per_s=80.0),
    metrics("trial-0", 0, value=0.7),
    {"op": "tags", "run": "trial-0", "tags": {"loopline.trial_state": "pruned"}},
    {"op": "end", "run": "trial-0", "status": "FINISHED", "at_ms": 4000},
    log("search", "ok", 5),
    log("train", "run", 6),
    metrics("loop", 1, train_loss=0.8),
    log("train", "progress", 8, "val_loss 0.8", 1, 4),
]


def progress_of(lines: list[dict[str, Any]]) -> LoopProgress:
    progress = LoopProgress()
    progress.add(dict(enumerate(lines, 1)))
    return progress


def test_lines_become_steps_trials_and_curves() -> None:
    progress = progress_of(LINES)
    assert {name: step.state for name, step in progress.steps.items()} == {
        "ingest": "done",
        "search": "ok",
        "train": "run",
    }
    assert progress.steps["search"].seconds(now=99) == 3
    trial = progress.trials["trial-0"]
    assert (trial.number, trial.state, trial.value, trial.epoch, trial.ended) == ("0", "pruned", 0.7, 1, 4.0)
    assert progress.shown_curves() == ("the training", {"train_loss": {1: 0.8}})
    assert progress.costs == {"samples_per_s": 80.0}
    assert [line.text for line in progress.log][-1] == "train 1/4 val_loss 0.8"


def test_the_machine_is_shown_by_the_seconds_of_the_loop() -> None:
    begin = {"op": "run", "run": "loop", "name": "tiny-1", "tags": {}, "parent": None, "at_ms": 5000}
    sample = {**metrics("loop", 1, **{"system/cpu_utilization_percentage": 80.0}), "at_ms": 15_200}
    progress = progress_of([begin, sample])
    assert progress.machine == {"CPU, %": {10: 80.0}}
    assert progress.curves == {}


def test_a_page_that_goes_on_shows_what_a_new_one_shows() -> None:
    bit_by_bit = LoopProgress()
    for number, line in enumerate(LINES, 1):
        bit_by_bit.add({number: line})
    assert bit_by_bit == progress_of(LINES)
    assert bit_by_bit.number == len(LINES)


def test_the_end_is_estimated_by_the_running_step_and_the_last_times_of_the_others() -> None:
    progress = progress_of(LINES)
    assert (
        progress.seconds_left(8, {"train": 900.0, "judge": 5.0, "search": 50.0}, ("search", "train", "judge")) == 6 + 5
    )
    begun = progress_of([log("judge", "run", 1)])
    assert begun.seconds_left(3, {"judge": 5.0}, ("judge",)) == 3
    assert begun.seconds_left(3, {}, ("judge",)) is None


def test_a_loop_that_goes_on_after_a_kill_runs_its_step_again() -> None:
    progress = progress_of([*LINES, log("search", "done", 20), log("train", "run", 21)])
    current = progress.current
    assert current is not None
    assert (current.name, current.began, current.count) == ("train", 21, 0)


def test_the_log_keeps_its_last_lines_alone() -> None:
    progress = progress_of([log("", "note", second, f"note {second}") for second in range(LOG_LINES + 5)])
    assert len(progress.log) == LOG_LINES
    assert progress.log[-1].text == f"note {LOG_LINES + 4}"


@pytest.mark.parametrize("op", ["artifact", "dataset", "of a later Loopline"])
def test_other_lines_are_passed_over(op: str) -> None:
    assert progress_of([{"op": op, "run": "loop"}]) == LoopProgress(number=1)
