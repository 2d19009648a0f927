"""What came is told as an event, once."""

from __future__ import annotations

import time

import pytest

from models.triggers.signal import PastLoop
from tasks.host.workspace import Project
from tasks.loop import history
from tasks.loop.growth import SourceGrowth
from tasks.operations import arrivals
from tasks.operations.arrivals import announce
from tasks.prefect.events import waiting
from tests.conftest import MakeProject


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny", "retrain: {on: [new_data], min_new_labels: 5}\n")


def test_the_same_arrival_is_one_event(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert announce(project) == []
    monkeypatch.setattr(arrivals, "growth", lambda *_: SourceGrowth(key="k" * 64, text="data.csv: +2 rows", rows=2))
    for _ in range(2):
        (signal,) = announce(project)
        assert (signal.id, signal.kind, signal.evidence) == (f"data-{'k' * 16}", "new_data", {"rows": 2})
    assert waiting(project.workspace) == 1


def test_labels_count_as_data_once_there_are_enough_of_them(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    loop = PastLoop(loop_id="tiny-1", began=now, ended=now, outcome="kept")
    history.record_loop(project.state("tiny"), loop)
    for labels, told in ((4, []), (5, ["labels-tiny-1"]), (9, ["labels-tiny-1"])):
        monkeypatch.setattr(history, "_new_labels", lambda *_, labels=labels: labels)
        assert [signal.id for signal in announce(project)] == told
    assert waiting(project.workspace) == 1
