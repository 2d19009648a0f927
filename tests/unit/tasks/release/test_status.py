"""What a person reads of a release: a shadow beside the versions that answered, each at its own threshold."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from models.data.preparation import PREPARATION_FILE, ClassHead
from models.files import sha256, write_json
from tasks.host.workspace import Project
from tasks.release.status import compared
from tasks.state.shadows import shadow_log
from tests.conftest import MakeProject
from tests.tiny_jobs import preparation_of


def cache_version(project: Project, number: str, threshold: float) -> None:
    folder = project.workspace.cache / "models" / "tiny" / number
    folder.mkdir(parents=True)
    preparation_of("table", "binary").model_copy(update={"class_head": ClassHead(threshold=threshold)}).save(folder)
    write_json(folder.with_suffix(".json"), {PREPARATION_FILE: sha256(folder / PREPARATION_FILE)})


def test_a_shadow_agrees_where_it_and_the_version_that_answered_give_the_same_label(make_project: MakeProject) -> None:
    project = make_project("tiny")
    for number, threshold in (("1", 0.1), ("2", 0.3), ("3", 0.05)):
        cache_version(project, number, threshold)
    at = pa.array([datetime(2026, 11, 1, tzinfo=UTC)] * 4, pa.timestamp("us", tz="UTC"))
    rows = {"version": ["1", "1", "2", "2"], "score": [0.2, 0.06, 0.2, 0.4], "shadow.score": [0.02, 0.03, 0.06, 0.06]}
    shadow_log(project.state("tiny"), "3").append(pa.table({"id": ["a", "b", "c", "d"], "at": at, **rows}))
    found = compared(project, project.spec(), "3")
    assert (found.num_rows, found.agreement) == (4, 0.5)  # yes, no, no, yes against no, no, yes, yes
