"""A look at what was predicted, against a log on disk: counted once whatever happens, labels whenever they come."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from models.judge.verdict import Estimate, Verdict
from models.metrics.metrics import METRICS
from models.monitoring.report import MonitoringReport
from models.project_spec.judge import Judge
from models.project_spec.reader import read_spec
from tasks.operations import monitor as monitor
from tasks.prefect import events
from tasks.state.monitoring_store import opened
from tasks.state.predictions import label_store
from tests.conftest import MakeProject, Processes
from tests.unit.models.monitoring import conftest as made
from tests.watched import SPEC, World

HOUR = 3600.0
WRITE_PAGE = monitor._write_page


@pytest.fixture
def world(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(make_project(spec=SPEC), monkeypatch)


def test_predictions_become_windows_and_labels_that_come_late_make_them_measured(world: World) -> None:
    table = world.predict(1200)
    found = world.look()
    assert [window.num_predictions for window in found.windows] == [500, 500, 200]
    assert [window.whole for window in found.windows] == [True, True, False]
    assert all(window.realised is None for window in found.windows)
    assert (found.state, found.champion) == ("green", "1")
    estimates = [window.estimated for window in found.windows]
    world.label(table, most=700)
    found = world.look()
    assert [window.num_labels for window in found.windows] == [500, 200, 0]
    assert [window.realised is not None for window in found.windows] == [True, True, False]
    first = found.windows[0]
    assert first.realised is not None
    assert first.realised.value == pytest.approx(0.82, abs=0.06)
    assert estimates[0] == pytest.approx(first.realised.value, abs=0.05)
    assert found.num_labels == 700
    assert MonitoringReport.model_validate_json((world.state / "monitoring" / "monitoring.json").read_text()) == found


def test_the_page_lies_beside_the_findings(world: World) -> None:
    world.predict(500)
    world.look()
    path, findings, spec = world.page
    WRITE_PAGE(path, findings, spec)
    assert path == world.state / "monitoring" / "monitoring.html"
    assert path.read_text().startswith("<!doctype html>")


def test_looking_again_changes_nothing_and_tells_mlflow_once(world: World) -> None:
    world.label(world.predict(1200))
    first = world.look()
    assert sorted(world.told) == [0, 1]
    assert world.told[0]["monitor_labels"] == 500
    world.told.clear()
    assert world.look() == first
    assert world.told == {}


def test_how_often_one_looks_does_not_matter(world: World, make_project, monkeypatch) -> None:
    other = World(make_project("other", spec=SPEC), monkeypatch)
    for step in range(6):
        for each in (world, other):
            table = each.predict(217, begin=step * 1000.0, seed=step)
            each.label(table, seed=step)
        world.look()
    told = [window.model_copy(update={"id": ""}) for window in world.windows()]
    assert told == [window.model_copy(update={"id": ""}) for window in other.windows()]


def test_late_labels_of_a_window_count_in_the_pool_of_the_next(world: World) -> None:
    table = world.predict(1000)
    truth = ["true" if each else "false" for each in made.truth(table, 7, right=False)]
    when = [datetime.fromtimestamp(0, UTC)] * 500
    for half, pools in ((slice(500, 1000), [0, 1]), (slice(0, 500), [1, 2])):
        ids = [f"7-{place}" for place in range(1000)][half]
        label_store(world.state).append(pa.table({"id": ids, "label": truth[half], "at": when}))
        assert [window.num_pooled for window in world.windows()] == pools


def test_a_decayed_champion_is_told_once_as_an_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[events.Event] = []
    monkeypatch.setattr(events, "send", lambda workspace, event: sent.append(event) or True)
    world.label(world.predict(1000), right=False)
    found = world.look()
    assert found.state == "red"
    assert found.reason.startswith("roc_auc 0.5")
    assert "over the last 2 windows, promoted with 0.82" in found.reason
    world.look()
    assert [event.name for event in sent] == ["loopline.model.decayed"]
    world.label(world.predict(500, seed=8), seed=8, right=False)
    world.look()
    assert len(sent) == 2


def test_labels_that_come_early_twice_or_for_nothing_known(world: World) -> None:
    table = made.rows(500, seed=7)
    world.label(table, right=False)
    assert world.look().num_unknown_labels == 500
    world.label(table, right=True)
    world.predict(500)
    found = world.look()
    assert found.num_unknown_labels == 0
    (window,) = found.windows
    assert window.num_labels == 500
    assert window.realised is not None
    assert window.realised.value == pytest.approx(0.82, abs=0.06)
    label_store(world.state).append(
        pa.table({"id": ["nobody", "7-3"], "label": ["true", "perhaps"], "at": [datetime.now(UTC)] * 2})
    )
    found = world.look()
    assert found.num_unknown_labels == 1
    assert "1 of the new labels are no class" in " ".join(found.notes)
    assert found.windows[0].num_labels == 499


def test_a_label_that_is_withdrawn_while_it_waits_is_never_counted(world: World) -> None:
    world.label(made.rows(3, seed=7), right=True)
    assert world.look().num_unknown_labels == 3
    store, now = label_store(world.state), datetime.now(UTC)
    store.append(pa.table({"id": ["7-0", "7-1"], "label": pa.nulls(2, pa.string()), "at": [now] * 2}))
    store.append(pa.table({"id": ["7-1", "7-3"], "label": ["true", "true"], "at": [now] * 2}))
    store.append(pa.table({"id": ["7-3"], "label": pa.nulls(1, pa.string()), "at": [now]}))
    world.predict(500)
    found = world.look()
    assert found.num_unknown_labels == 0
    assert found.windows[0].num_labels == 2, "7-1, labelled again, and 7-2"


def test_labels_of_predictions_that_a_large_window_does_not_keep_wait_for_nothing(world: World, monkeypatch) -> None:
    monkeypatch.setattr("models.monitoring.examples.MOST_MEASURED", 100)  # of the 500 of a window
    world.label(world.predict(500))
    found = world.look()
    assert (found.num_unknown_labels, found.windows[0].num_labels) == (0, 500)


def test_predictions_sent_twice_count_once(world: World) -> None:
    world.predict(400)
    world.look()
    world.predict(400)
    world.predict(450)
    assert [window.num_predictions for window in world.windows()] == [450]
    world.predict(400, version="2")
    world.register("2")
    assert [window.num_predictions for window in world.windows("2")] == [400]


def test_after_all_predictions_were_removed_those_that_come_count_from_the_first(world: World) -> None:
    """Removing all is the cure that a log names which has lost a file."""
    for seed in range(3):
        world.predict(500, seed=seed)
    assert world.look().num_predictions == 1500
    shutil.rmtree(world.state / "predictions")
    world.label(world.predict(500, begin=2000.0, seed=9), seed=9)
    found = world.look()
    assert found.num_predictions == 2000
    assert found.windows[-1].num_labels == 500
    assert any("shorter than before" in note for note in found.notes)


def test_a_clock_that_goes_back_loses_and_repeats_nothing(world: World) -> None:
    world.predict(300, begin=50 * HOUR)
    world.look()
    world.predict(300, begin=10 * HOUR, seed=8)
    first, second = world.windows()
    assert (first.num_predictions, second.num_predictions) == (500, 100)
    assert first.begin == 10 * HOUR
    assert first.end == 50 * HOUR + 299


def test_a_new_version_in_the_middle_has_windows_of_its_own(world: World) -> None:
    world.predict(700)
    world.register("2")
    world.champion = "2"
    world.predict(600, begin=10 * HOUR, seed=8, version="2")
    found = world.look()
    assert [(one.version, one.num_predictions) for one in found.windows] == [
        ("1", 500),
        ("1", 200),
        ("2", 500),
        ("2", 100),
    ]
    assert [window.version for window in found.of_champion()] == ["2"]


def test_a_version_without_reference_is_watched_by_its_labels_alone(world: World) -> None:
    world.register("2", with_reference=False)
    world.champion = "2"
    world.label(world.predict(500, version="2"))
    found = world.look()
    (window,) = found.windows
    assert window.realised is not None
    assert (window.features, window.predictions, window.estimated) == ([], [], None)
    assert "has no monitoring reference" in found.notes[0]


def test_a_version_that_the_registry_lacks_is_counted_and_said(world: World) -> None:
    world.predict(500, version="9")
    found = world.look()
    assert (found.num_predictions, found.windows) == (500, [])
    assert found.notes == ["version 9 is not in the registry: its predictions are counted, not judged"]


def test_an_empty_log_and_no_champion_are_no_trouble(world: World) -> None:
    found = world.look()
    assert (found.state, found.windows) == ("green", [])
    assert "no whole window yet" in found.reason
    world.champion = ""
    assert world.look().reason == "there is no champion to monitor"


class Killed(BaseException):
    """Stands for kill -9: nothing after it is done."""


@pytest.mark.parametrize("moment", ["save", "set_place", "save_examples", "save_report", "set_sent", "set_logged"])
def test_a_look_that_is_killed_anywhere_counts_nothing_twice(world: World, monkeypatch, moment: str) -> None:
    from tasks.state.monitoring_store import MonitorStore

    table = world.predict(1200)
    world.label(table, right=False)
    calls = []

    def killed(self, *arguments):
        calls.append(moment)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(MonitorStore, moment, killed)
        with pytest.raises(Killed):
            world.look()
    assert calls == [moment]
    world.predict(100, seed=8)
    found = world.look()
    assert [window.num_predictions for window in found.windows] == [500, 500, 300]
    assert [window.num_labels for window in found.windows] == [500, 500, 200]
    assert np.isclose(found.windows[0].end, 499)


def test_broken_input_is_red_and_named(world: World) -> None:
    world.predict(1000, shift=60.0)
    found = world.look()
    assert found.state == "red"
    assert "wind: 100 % of the values are out of range" in found.reason


def test_a_spec_that_judges_otherwise_looks_at_all_windows_again(world: World) -> None:
    world.label(world.predict(1000))
    assert not any(window.decayed for window in world.look().windows)
    world.spec = read_spec(world.project.spec_path, ["monitor.psi=0.000001", "monitor.alpha=0.999999"], "project.yaml")
    assert all(window.state == "amber" for window in world.look().windows)


def test_the_counts_are_kept_by_version_and_hour(world: World) -> None:
    world.predict(100, begin=HOUR - 50)
    world.look()
    with opened(world.state / "monitoring") as store:
        window = store.window("1", 0)
    assert {hour: part.num_rows for hour, part in window.hours.items()} == {0: 50, 1: 50}
    assert window.tally.counts["input.colour"].sum() == 100


def test_a_process_killed_in_the_middle_of_a_look_counts_nothing_twice(world: World, at_once: Processes) -> None:
    table = world.predict(1200)
    world.label(table)
    code = (
        "import os, sys, pytest; from tests.watched import World\n"
        "from tasks.state.monitoring_store import MonitorStore\n"
        "from tasks.host.workspace import Workspace; patch = pytest.MonkeyPatch()\n"
        "patch.setattr(MonitorStore, 'set_place', lambda *given: os.kill(os.getpid(), 9))\n"
        "World(Workspace.find().project('tiny'), patch).look()"
    )
    (done,) = at_once(code)
    assert done.returncode == -9
    found = world.look()
    assert [(window.num_predictions, window.num_labels) for window in found.windows] == [
        (500, 500),
        (500, 500),
        (200, 200),
    ]


def test_what_a_server_wrote_is_looked_at_as_what_a_batch_logged(world: World, make_project, monkeypatch) -> None:
    """No compactor runs: the look itself takes in predictions and labels."""
    other = World(make_project("other", spec=SPEC), monkeypatch)
    table = made.rows(600, seed=7, nulls=0.01)
    world.serve(table)
    world.turned_out(table)
    other.predict(600, nulls=0.01)
    other.label(table)
    found, told = world.look(), other.look()
    assert [window.num_labels for window in found.windows] == [500, 100]
    assert found.windows[0].realised is not None
    assert [window.model_dump() for window in found.windows] == [window.model_dump() for window in told.windows]


def test_what_is_never_written_down_is_not_missed(world: World, make_project, monkeypatch) -> None:
    spec = SPEC + "serve: {log: {redact: [wind, colour]}}\n"
    redacting = World(make_project("redacting", spec=spec), monkeypatch)
    for each in (world, redacting):
        each.serve(made.rows(500, seed=7), redacted=("wind", "colour"))
    (missed,), (found,) = world.look().windows, redacting.look().windows
    assert (missed.state, found.state) == ("red", "green")
    assert [drift.name for drift in found.features] == ["gust"]


def test_a_promise_of_before_exact_intervals_gets_one() -> None:
    facts = {"task": "binary", "metric": "accuracy", "direction": "maximize", "rules": Judge(), "num_samples": 86}
    old = Verdict(challenger=Estimate(value=1.0, low=1.0, high=1.0), **facts)
    assert monitor.promised(old, METRICS["accuracy"]).low == pytest.approx(0.958, abs=1e-3)
    new = Estimate(value=0.9, low=0.85, high=0.95)
    assert monitor.promised(old.model_copy(update={"challenger": new}), METRICS["accuracy"]) == new
    assert monitor.promised(old, METRICS["roc_auc"]) is None


def test_a_promise_of_weighted_rows_is_that_of_rows_that_count_alike() -> None:
    """Served rows have no weights: unless the weights undo a sampling, the promotion is compared without them."""
    facts = {"task": "binary", "metric": "accuracy", "direction": "maximize", "rules": Judge(), "num_samples": 86}
    alike, weighted = Estimate(value=0.7, low=0.65, high=0.75), Estimate(value=0.9, low=0.85, high=0.95)
    verdict = Verdict(challenger=weighted, unweighted=alike, metrics={"f1": {"challenger": 0.8}}, **facts)
    assert monitor.promised(verdict, METRICS["accuracy"]) == alike
    assert monitor.promised(verdict, METRICS["accuracy"], rows_alike=False) == weighted
    assert monitor.promised(verdict, METRICS["f1"]) is None
    assert monitor.promised(verdict, METRICS["f1"], rows_alike=False) == Estimate(value=0.8)
