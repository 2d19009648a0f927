"""What a person reads of a release: a shadow beside the versions that answered, each at its own threshold."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from models.data.preparation import PREPARATION_FILE, ClassHead
from models.files import sha256, write_json
from models.serving.releases import Canary, Release
from tasks.host import database
from tasks.host.workspace import Project
from tasks.release.deployment import CountExchange, exchange
from tasks.release.shared_state import VersionOutcomes
from tasks.release.status import compared, release_status
from tasks.state.shadows import shadow_log
from tests.conftest import MakeProject
from tests.serving import crown
from tests.tiny_jobs import preparation_of


def cache_version(project: Project, number: str, threshold: float, positive: str = "yes") -> None:
    folder = project.workspace.cache / "models" / "tiny" / number
    folder.mkdir(parents=True)
    preparation = preparation_of("table", "binary")
    classes = [positive, *(name for name in ("no", "yes") if name != positive)][::-1]
    target = preparation.target.model_copy(update={"classes": classes})
    preparation.model_copy(update={"class_head": ClassHead(threshold=threshold), "target": target}).save(folder)
    write_json(folder.with_suffix(".json"), {PREPARATION_FILE: sha256(folder / PREPARATION_FILE)})


def test_a_machine_without_a_server_shows_the_release_of_the_deployment(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("tiny")
    server = CountExchange(project.state("tiny"))
    release = Release(generation=3, stable="1", canary=Canary(version="2", share=0.25, trial="t"))
    server.offer(release, {"2": VersionOutcomes(answers=9, failed=1)})
    exchange([server])
    assert release_status(project, project.spec()).release is None, "the state database is of this machine alone"
    monkeypatch.setattr(database, "is_shared", lambda: True)
    status = release_status(project, project.spec())
    assert (status.release, status.workers, status.servers) == (release, 0, 1)
    assert [(one.role, one.share, one.tally.answers) for one in status.versions] == [
        ("stable", 0.75, 0), ("canary", 0.25, 9),
    ]  # fmt: skip


def test_a_shadow_agrees_where_it_and_the_version_that_answered_give_the_same_label(make_project: MakeProject) -> None:
    project = make_project("tiny")
    for number, threshold in (("1", 0.1), ("2", 0.3), ("3", 0.05)):
        cache_version(project, number, threshold)
    at = pa.array([datetime(2026, 11, 1, tzinfo=UTC)] * 4, pa.timestamp("us", tz="UTC"))
    rows = {"version": ["1", "1", "2", "2"], "score": [0.2, 0.06, 0.2, 0.4], "shadow.score": [0.02, 0.03, 0.06, 0.06]}
    shadow_log(project.state("tiny"), "3").append(pa.table({"id": ["a", "b", "c", "d"], "at": at, **rows}))
    found = compared(project, project.spec(), "3")
    assert (found.num_rows, found.agreement) == (4, 0.5)  # yes, no, no, yes against no, no, yes, yes


def test_a_version_whose_other_class_is_positive_is_compared_by_the_same_class(make_project: MakeProject) -> None:
    project = make_project("tiny")
    cache_version(project, "1", 0.9, positive="no")
    cache_version(project, "2", 0.1)
    at = pa.array([datetime(2026, 11, 1, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC"))
    rows = {"version": ["1", "1"], "score": [0.95, 0.8], "shadow.score": [0.05, 0.2]}
    shadow_log(project.state("tiny"), "2").append(pa.table({"id": ["a", "b"], "at": at, **rows}))
    found = compared(project, project.spec(), "2")
    assert (found.agreement, found.distance) == (1.0, pytest.approx(0.0))


def test_servers_that_do_not_answer_as_the_newest_move_says_are_told_with_the_reason(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("tiny")
    crown(project.workspace, "tiny", "2")
    assert release_status(project, project.spec()).behind == [], "no server runs"
    monkeypatch.setattr(database, "is_shared", lambda: True)
    for release in (
        Release(stable="2"),
        Release(stable="1"),
        Release(stable="1"),
        Release(stable="1", canary=Canary(version="2", share=0.1)),
        Release(stable="1", refused={"2": "damaged"}),
        Release(stable="1", away="the database is away: the version that answers stays"),
    ):
        server = CountExchange(project.state("tiny"))
        server.offer(release, {})
        exchange([server])
    assert sorted(release_status(project, project.spec()).behind) == [
        "a server answers with version 1 and not yet with version 2",
        "the database is away: the version that answers stays",
    ]
