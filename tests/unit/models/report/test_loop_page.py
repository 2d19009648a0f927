"""The page of a loop in each of its states; what changes is one part of it, with and without scripts."""

from __future__ import annotations

import pytest

from models.report.facts import LoopState
from models.report.loop_page import LoopFacts, render_live, render_loop
from models.report.loop_progress import LoopProgress
from tests.unit.models.report.test_loop_progress import LINES, log, progress_of

RUNNING = LoopFacts("tiny-1", "tiny", "running", began=0.0, can_stop=True, usual={"train": 9.0})
ENDED = LoopFacts(
    "tiny-1", "tiny", "failed", began=0.0, ended=60.0, step="train", reason="the loss is NaN", can_retry=True
)


def test_a_running_loop_can_be_stopped_and_is_followed() -> None:
    page = render_loop(RUNNING, progress_of(LINES), now=8.0)
    assert 'href="/projects/tiny/stop"' in page
    assert f'data-events="/loops/tiny-1/events?after={len(LINES)}"' in page
    assert "1 of 4" in page
    assert "ends in 6 s" in page
    assert render_live(RUNNING, progress_of(LINES), now=8.0) in page


def test_an_ended_loop_says_why_and_runs_no_script() -> None:
    page = render_loop(ENDED, progress_of([*LINES, log("train", "failed", 9, "TrainingError")]), now=99.0)
    assert "failed at train" in page
    assert "the loss is NaN" in page
    assert 'href="/projects/tiny/retry"' in page
    assert "<script" not in page
    assert "data-events" not in page


@pytest.mark.parametrize("state", ["finished", "rejected", "cancelled", "killed"])
def test_a_loop_without_lines_has_a_page(state: LoopState) -> None:
    page = render_loop(LoopFacts("old-1", "old", state, began=0.0), LoopProgress(), now=9.0)
    assert state in page
    assert "Nothing is recorded of its steps" in page


def test_what_users_wrote_is_escaped() -> None:
    lines = [log("", "note", 1, "<script>alert(1)</script>")]
    assert "<script>alert" not in render_live(RUNNING, progress_of(lines), now=2.0)
