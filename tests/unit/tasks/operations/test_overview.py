"""What the overview gathers from records and files, and that it stays quick however long the history is."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.pipeline.steps import DATA_STEPS
from models.report.facts import ProjectFacts
from models.serving.registry_comparison import Projection
from models.triggers.signal import Decision, PastLoop, Signal
from tasks.host import database, processes
from tasks.host.workspace import Project, Workspace
from tasks.loop import decisions, history
from tasks.loop.history import LoopRecord, save_loop
from tasks.loop.step_cache import StepCache
from tasks.mlflow import embedded_store
from tasks.operations.overview import known_projects, name_of, overview, project_named
from tasks.prefect import events
from tasks.state import registered_models
from tasks.state.step_records import StepRecords
from tests.conftest import MakeProject
from tests.told_facts import findings, window

NOW = time.time()
LOOP = "tiny-20261121-175547-e106"


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny", "retrain: {schedule: every 7 days, on: [decay], ask_timeout_s: 3600}\n")


@pytest.fixture
def state(project: Project) -> Path:
    folder = project.state("tiny")
    folder.mkdir(parents=True)
    return folder


def told(project: Project) -> ProjectFacts:
    return at(project, NOW)


def at(project: Project, now: float) -> ProjectFacts:
    return overview(project.workspace, [project], now).projects[0]


def loop_state(place: Path, project: Project, **more: object) -> None:
    given = {"loop_id": LOOP, "state": "finished", "folder": str(project.folder), "began": NOW - 60, "intent": "i"}
    save_loop(place, LoopRecord(**{**given, "process": processes.identity(), **more}))  # type: ignore[arg-type]


def record(step: str, finished: float, loop_id: str = LOOP, key: str = "k", **result: object) -> StepRecord:
    return StepRecord(step=step, key=key, parts={}, digest="d", result=result, loop_id=loop_id, finished=finished)


def save(state: Path, project: Project, *found: StepRecord) -> None:
    records = StepRecords(state, project.workspace.root)
    for each in found:
        records.save(each)


def test_a_project_that_was_never_run(project: Project) -> None:
    facts = told(project)
    assert (facts.name, facts.loop.state, facts.champion, facts.error) == ("tiny", "never run", None, None)
    assert facts.owed[0] == "ingest"
    assert facts.light.reason == "there is no champion: no loop was run yet"
    assert (facts.schedule, facts.triggers) == ("every 7 days", ["decay"])
    assert facts.next_loop is not None
    assert NOW < facts.next_loop <= NOW + 7 * 86400


def test_what_was_asked_and_is_not_decided_yet_is_amber(project: Project) -> None:
    for name, kind in (("w", "person"), ("d", "decay"), ("n", "new_data")):
        asked = Signal.model_validate({"id": name, "kind": kind, "at": NOW, "reason": f"{name} asks"})
        events.send(project.workspace, events.of_signal("tiny", asked))
    facts = told(project)
    assert {signal.id for signal in facts.undecided} == {"w", "d"}, "new data begins no loop here"
    assert any("not decided yet" in reason for reason in facts.light.reasons)


def test_a_schedule_names_the_clock_that_it_is_read_by(make_project: MakeProject) -> None:
    vienna = make_project("vienna", "retrain: {schedule: 0 3 * * 1, timezone: Europe/Vienna}\n")
    assert told(vienna).schedule == "0 3 * * 1, Europe/Vienna"
    assert told(make_project("alone", "retrain: {timezone: Europe/Vienna}\n")).schedule == ""


def test_a_spec_that_cannot_be_read_is_told_not_raised(project: Project) -> None:
    project.spec_path.write_text("data: {}\n")
    facts = told(project)
    assert facts.light.colour == "red"
    assert "data.source: missing" in str(facts.error)
    assert name_of(project) == "tiny"


def test_a_loop_whose_process_is_gone_was_killed(project: Project, state: Path) -> None:
    loop_state(state, project, state="running")
    assert told(project).loop.state == "running"
    dead = {**processes.identity(), "started": "before the flood"}
    loop_state(state, project, state="running", process=dead, step="train")
    facts = told(project)
    assert (facts.loop.state, facts.loop.step, facts.owed[0]) == ("killed", "train", "ingest")
    assert f"{LOOP} was killed at train" in facts.light.reasons[0]
    loop_state(state, project, state="running", process=dead)
    assert told(project).loop.step == "", "none is guessed"


def test_rejected_data_is_told_with_what_failed(project: Project, state: Path) -> None:
    loop_state(state, project, state="failed")
    report = state / "quarantine" / LOOP / "raw" / "report.json"
    report.parent.mkdir(parents=True)
    failed = {"expectation": "column_to_exist", "column": "delay", "success": False, "severity": "reject"}
    report.write_text(json.dumps({"status": "rejected", "results": [failed]}))
    facts = told(project)
    assert (facts.data.status, facts.data.failing) == ("rejected", ["delay: the column is there (seen: –)"])
    assert facts.light.colour == "red"
    loop_state(state, project, state="finished", loop_id="tiny-2")
    assert told(project).data.status == ""


def test_of_many_projects_no_plan_is_made_but_of_data_in_doubt(project: Project, state: Path) -> None:
    """A file that was put back has older records than the last ones."""
    cache, records = StepCache(project, project.spec()), dict[str, StepRecord]()
    for step in DATA_STEPS[:2]:
        parts = cache.parts(step, records)
        done = record(step.name, NOW - 60, key=key_of(parts), status="valid", rows=7)
        records[step.name] = done.model_copy(update={"parts": parts})
    save(state, project, *records.values(), record("ingest", NOW, rows=9), record("validate-raw", NOW, status="warned"))
    whole, brief = told(project), overview(project.workspace, now=NOW, plans=False).projects[0]
    assert (whole.data.rows, whole.data.status) == (brief.data.rows, brief.data.status) == (7, "valid")
    save(state, project, *records.values())
    clean = overview(project.workspace, now=NOW, plans=False).projects[0]
    assert (clean.owed, clean.data, clean.light) == ([], whole.data, whole.light)


def test_the_history_tells_how_loops_ended_with_their_verdicts(project: Project, state: Path) -> None:
    ends = [
        ("a", NOW - 300, "promoted"),
        ("b", NOW - 200, "failed"),
        ("b", NOW - 100, "kept"),
        ("c", NOW - 50, "rejected"),
    ]
    for loop_id, ended, outcome in ends:
        past = {"loop_id": loop_id, "began": ended - 9, "ended": ended, "outcome": outcome, "trigger": "decay"}
        history.record_loop(state, PastLoop.model_validate(past))
    save(
        state,
        project,
        record("promote", NOW - 900, "old", key="0", version="1", decision="promote", reasons=["First."]),
        record("promote", NOW - 101, "b", key="2", version="3", decision="keep", reasons=["Kept.", "more"]),
    )
    facts = told(project)
    assert [(each.loop_id, each.outcome, each.version, each.reason) for each in facts.history] == [
        ("c", "rejected", "", ""),
        ("b", "kept", "3", "Kept."),
        ("a", "promoted", "", ""),
        ("old", "promoted", "1", "First."),
    ]
    assert (facts.loop.decision, facts.loop.reasons) == ("keep", ["Kept.", "more"])


def decision(number: int, action: str, at: float, flow_run: str | None = None) -> Decision:
    signal = Signal(id=f"s{number}", kind="new_data", at=at, reason="rows came")
    return Decision.model_validate(
        {"signal": signal, "at": at, "action": action, "reasons": ["rows came"], "flow_run": flow_run}
    )


def test_a_question_waits_until_it_is_answered_or_too_old(project: Project, state: Path) -> None:
    decisions.record(state, decision(1, "ask", NOW - 60, "run-1"))
    decisions.record(state, decision(2, "wait", NOW - 30))
    facts = told(project)
    assert [each.action for each in facts.decisions] == ["wait", "ask"]
    assert facts.waiting is not None
    assert (facts.waiting.flow_run, facts.waiting.until) == ("run-1", NOW - 60 + 3600)
    assert at(project, NOW + 7200).waiting is None
    decisions.record(state, decision(1, "retrain", NOW - 10, "run-1"))
    assert told(project).waiting is None


def test_a_strange_file_is_passed_over(project: Project, state: Path) -> None:
    decisions.record(state, decision(1, "wait", NOW - 60))
    (state / "monitoring").mkdir()
    (state / "monitoring" / "monitoring.json").write_text('{"version": 99}')
    facts = told(project)
    assert (len(facts.decisions), facts.monitor, facts.error) == (1, None, None)


def test_what_monitoring_found_and_what_was_predicted(project: Project, state: Path) -> None:
    (state / "monitoring").mkdir()
    (state / "monitoring" / "monitoring.json").write_text(findings(window(1)).model_dump_json())
    (state / "predictions").mkdir()
    part = state / "predictions" / "000000000001-000000000001.parquet"
    part.write_bytes(b"x" * 100)
    os.utime(part, (NOW - 5, NOW - 5))
    facts = told(project)
    assert facts.monitor == findings(window(1))
    assert facts.predictions.size_bytes == 100
    assert facts.predictions.last == pytest.approx(NOW - 5)


def test_the_summary_of_the_last_backtest_is_shown(project: Project, state: Path) -> None:
    assert at(project, 0.0).backtest == ""
    (state / "backtest").mkdir(parents=True)
    (state / "backtest" / "backtest.json").write_text('{"summary": "Take decay: the best."}')
    assert at(project, 0.0).backtest == "Take decay: the best."


def test_projects_elsewhere_are_known_by_their_loops(
    workspace: Workspace, project: Project, make_project: MakeProject, tmp_path: Path
) -> None:
    away = make_project("away", folder=tmp_path / "elsewhere" / "away")
    for name, folder in (("tiny", tmp_path), ("away", away.folder), ("gone", tmp_path / "gone")):
        save_loop(workspace.state / "projects" / name, LoopRecord(f"{name}-1", "finished", folder=str(folder)))
    assert [each.folder for each in known_projects(workspace)] == [project.folder, away.folder]
    found = project_named(workspace, "away")
    assert found is not None
    assert found.folder == away.folder
    assert project_named(workspace, "../tiny") is None
    assert project_named(workspace, "gone") is None


def test_a_name_in_the_spec_wins_over_the_folders(workspace: Workspace, make_project: MakeProject) -> None:
    named = make_project("churn", folder=workspace.root / "projects" / "customers")
    found = project_named(workspace, "churn")
    assert found is not None
    assert found.folder == named.folder
    assert project_named(workspace, "customers") is None


def test_the_whole_workspace(workspace: Workspace, project: Project) -> None:
    whole = overview(workspace)
    assert [each.name for each in whole.projects] == ["tiny"]
    assert {"prefect", "mlflow", "overview"} <= set(whole.services)
    assert whole.services["prefect"].url is None
    assert whole.disk.total_bytes >= whole.disk.free_bytes > 0
    assert (whole.light.colour, whole.light.reason) == ("amber", "tiny needs a person")


def test_a_registry_that_cannot_be_read_is_told(workspace: Workspace, project: Project) -> None:
    """As of an older Loopline: MLflow holds moves that no row has yet."""
    with database.writing(workspace.state) as connection:
        registered_models.save(connection, "tiny", Projection())
    assert "its versions must be read from MLflow first" in told(project).light.reason


def test_many_loops_are_not_all_read(
    project: Project, state: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path
) -> None:
    shutil.copytree(empty_store, project.workspace.state / "mlflow")
    many = 120
    for number in range(many):
        at = NOW - 60.0 * (many - number)
        made = record("promote", at, f"l{number}", key=f"{number}", version="1", decision="keep", reasons=["Kept."])
        save(state, project, made)
    read: list[str] = []
    validate = StepRecord.model_validate_json
    monkeypatch.setattr(
        StepRecord, "model_validate_json", lambda text: read.append(json.loads(text)["key"]) or validate(text)
    )
    assert told(project).history[0].loop_id == f"l{many - 1}"
    assert 0 < len(read) < 50


def test_why_the_last_loop_failed_is_told_until_another_one_begins(project: Project, state: Path) -> None:
    loop_state(state, project, state="failed", step="train")
    ended = PastLoop(loop_id=LOOP, began=NOW - 60, ended=NOW, outcome="failed", reason="loss is NaN: lower train.lr")
    history.record_loop(state, ended)
    failed = told(project)
    assert (failed.loop.failure, failed.history[0].reason) == (ended.reason, ended.reason)
    assert failed.light.reason.endswith(ended.reason)
    loop_state(state, project, loop_id="another", state="running")
    assert told(project).loop.failure == ""
    assert told(project).history[0].reason == ended.reason


def test_the_registry_is_only_read(workspace: Workspace, project: Project, empty_store: Path) -> None:
    shutil.copytree(empty_store, workspace.state / "mlflow")
    path = workspace.state / "mlflow" / "mlflow.db"
    with sqlite3.connect(path) as connection:
        connection.execute("insert into registered_models (name, workspace) values ('tiny', 'default')")
    connection.close()
    before = path.read_bytes()
    assert told(project).champion is None
    assert path.read_bytes() == before


@pytest.mark.wide
def test_twenty_projects_take_no_more_queries_than_one(make_project: MakeProject) -> None:
    names = [f"p{number}" for number in range(20)]
    projects = {name: make_project(name) for name in names}
    workspace = projects["p0"].workspace
    for name, project in projects.items():
        state = project.state(name)
        loop_state(state, project, loop_id=f"{name}-1")
        history.record_loop(state, PastLoop(loop_id=f"{name}-1", began=NOW - 9, ended=NOW, outcome="kept"))
        signal = Signal(id=name, kind="decay", at=NOW, reason="it fell")
        decisions.record(state, Decision(signal=signal, at=NOW, action="wait", reasons=["why"]))
        events.send(workspace, events.of_signal(name, signal.model_copy(update={"id": "open", "at": NOW + 60})))
        save(state, project, *(record(step, NOW) for step in ("validate-raw", "register", "promote")))
    statements: list[str] = []

    def count(*executed: object) -> None:
        statements.append(str(executed[2]))

    def queries(chosen: list[Project]) -> int:
        statements.clear()
        seen = overview(workspace, chosen)
        assert all(one.history and one.decisions for one in seen.projects)
        return len(statements)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        one, many = queries([projects["p0"]]), queries([*projects.values()])
        assert many == one
        save(projects["p1"].state("p1"), projects["p1"], record("ingest", NOW))
        assert queries([*projects.values()]) == one + 1, "an older record may be the one of the data as they are now"
    finally:
        event.remove(Engine, "before_cursor_execute", count)


def test_all_projects_are_read_in_one_transaction_and_by_one_connection(
    project: Project, state: Path, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("second", "third"):
        make_project(name)
    loop_state(state, project)
    embedded_store.initialise(project.workspace)
    begun, connections = [], []
    connect = sqlite3.connect
    monkeypatch.setattr(database, "_begun", lambda path, _begun=database._begun: begun.append(path) or _begun(path))
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, *args, **named: connections.append(str(path)) or connect(path, *args, **named)
    )
    assert [one.name for one in overview(project.workspace).projects] == ["second", "third", "tiny"]
    assert not [path for path in connections if "mlflow.db" in path], "nothing is read from MLflow's own file"
    assert len(begun) == 2, "the projects, and the sizes of the stores"


def test_a_registry_that_is_away_hides_nothing_else(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    projects = [make_project(name) for name in ("a", "b", "c")]
    for project in projects:
        place = project.state(project.folder.name)
        place.mkdir(parents=True)
        loop_state(place, project, loop_id=f"{project.folder.name}-1", state="failed", step="train")
        history.record_loop(
            place,
            PastLoop(loop_id=f"{project.folder.name}-1", began=NOW - 60, ended=NOW, outcome="failed", reason="NaN"),
        )
        decisions.record(place, decision(1, "retrain", NOW - 70))
        (place / "monitoring").mkdir()
        (place / "monitoring" / "monitoring.json").write_text(findings(window(1)).model_dump_json())
    whole = overview(projects[0].workspace, None, NOW)
    assert [one.error for one in whole.projects] == [None] * 3
    for one in whole.projects:
        assert (one.loop.state, one.loop.step, one.loop.failure) == ("failed", "train", "NaN")
        assert (len(one.history), len(one.decisions), len(one.windows)) == (1, 1, 1)
        assert "cannot be reached" in one.registry
        assert one.registry in one.light.reasons
    causes = [reason for reason in whole.light.reasons if "cannot be reached" in reason]
    assert causes == [whole.projects[0].registry], "one message for one cause"
    assert whole.services["mlflow"].detail == "cannot be read"
