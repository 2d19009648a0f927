"""What a run of the `retrain` flow says of its decision, and who began it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from flows import retrain
from flows.retrain import _decision_text, _kind, _signal
from models.triggers.signal import Decision, Signal

SIGNAL = Signal(id="s1", kind="decay", at=1e9, reason="roc_auc .71 is under .73", evidence={"value": 0.71})


def test_all_reasons_the_evidence_and_the_next_time_are_told() -> None:
    decision = Decision(signal=SIGNAL, at=1e9, action="wait", reasons=["cooldown", "quiet hours"], until=1e9 + 3600)
    told = _decision_text(decision)
    assert told.startswith("# wait\n")
    assert "- cooldown\n- quiet hours" in told
    assert "Weighed again 2001-09-09 02:46 UTC." in told
    assert "| value | 0.71 |" in told


def test_a_signal_that_came_with_the_event_is_the_one_that_counts() -> None:
    assert _signal(SIGNAL.model_dump(mode="json"), "person", "") == SIGNAL


@pytest.mark.parametrize(("auto_scheduled", "kind"), [(True, "schedule"), (False, "person")])
def test_a_run_of_the_scheduler_is_told_as_the_schedules(
    auto_scheduled: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SimpleNamespace(flow_run=SimpleNamespace(auto_scheduled=auto_scheduled))
    monkeypatch.setattr(retrain, "FlowRunContext", SimpleNamespace(get=lambda: run))
    assert _kind("person") == kind
