"""Every decision is kept, and a flow run that is run again finds its own."""

from __future__ import annotations

from pathlib import Path

from models.triggers.signal import Action, Decision, Signal
from tasks.loop.decisions import FILE, of_flow_run, read, record


def a_decision(name: str, action: Action = "wait", flow_run: str | None = None) -> Decision:
    signal = Signal(id=name, kind="decay", at=1.0, reason="lower", evidence={"value": 0.7})
    return Decision(signal=signal, at=2.0, action=action, reasons=["cooldown"], flow_run=flow_run)


def test_decisions_come_back_as_they_were_oldest_first(tmp_path: Path) -> None:
    made = [a_decision("a"), a_decision("b", "retrain")]
    for decision in made:
        record(tmp_path, decision)
    assert read(tmp_path) == made
    assert read(tmp_path, last=1) == made[1:]
    assert read(tmp_path / "none") == []


def test_lines_that_are_torn_or_from_a_later_loopline_are_passed_over(tmp_path: Path) -> None:
    record(tmp_path, a_decision("a"))
    with (tmp_path / FILE).open("a") as file:
        file.write('{"signal": 3}\n{"sig')
    record(tmp_path, a_decision("b"))
    assert [decision.signal.id for decision in read(tmp_path)] == ["a", "b"]


def test_a_flow_run_finds_what_it_decided_last(tmp_path: Path) -> None:
    record(tmp_path, a_decision("a", "ask", "run-1"))
    record(tmp_path, a_decision("b", "wait", "run-2"))
    record(tmp_path, a_decision("a", "retrain", "run-1"))
    found = of_flow_run(tmp_path, "run-1")
    assert found is not None
    assert found.action == "retrain"
    assert of_flow_run(tmp_path, "run-3") is None
