"""A source that a row of a team names counts in the key of `ingest`: its identity, its code and its packages."""

from pathlib import Path

import pytest

from models.errors import UserCodeError
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME
from models.project_spec.reader import read_spec
from tasks.host.workspace import Project
from tasks.loop.step_cache import Recorded, StepCache
from tasks.state.step_records import latest_records
from tests.conftest import MakeProject

INGEST = BY_NAME["ingest"]
ROW = """
def read(): ...
def identity(project): return (project / "stamp").read_text()
SOURCE = {"read": read, "identity": identity}
"""


@pytest.fixture
def project(make_project: MakeProject, code_memory: str) -> Project:
    project = make_project("tiny")
    (project.workspace.cache / "code.json").write_text(code_memory)
    (project.folder / "warehouse.py").write_text(ROW)
    (project.folder / "stamp").write_text("monday")
    name_source(project, "./warehouse.py:SOURCE")
    return project


def name_source(project: Project, text: str) -> None:
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", text))


def cache_of(project: Project) -> StepCache:
    return StepCache(project, read_spec(project.spec_path))


def record(project: Project) -> None:
    cache = cache_of(project)
    parts = cache.parts(INGEST, {})
    key = key_of(parts)
    cache.records.save(
        StepRecord(
            step="ingest", key=key, parts=parts, outputs={}, digest=key, loop_id="tiny-1", finished=0.0, result={}
        )
    )


def state(cache: StepCache) -> tuple[str, list[str]]:
    planned = cache.plan([INGEST])[0]
    return planned.state, planned.reasons


def test_ingest_runs_again_by_the_identity_and_by_the_code(project: Project) -> None:
    record(project)
    assert state(cache_of(project)) == ("done", [])
    (project.folder / "stamp").write_text("tuesday")
    assert state(cache_of(project)) == ("run", ["source ./warehouse.py:SOURCE: changed"])
    (project.folder / "stamp").write_text("monday")
    (project.folder / "warehouse.py").write_text(ROW.replace("...", "return 1"))
    assert state(cache_of(project)) == ("run", ["code warehouse.py: changed"])


def test_who_looks_at_many_projects_asks_no_source(project: Project) -> None:
    record(project)
    (project.folder / "stamp").unlink()
    spec, workspace = read_spec(project.spec_path), project.workspace
    recorded = Recorded(workspace.folders(), latest_records(workspace.state, [spec.name], [*BY_NAME]), {})
    assert state(StepCache(project, spec, recorded=recorded)) == ("done", [])
    with pytest.raises(UserCodeError, match="FileNotFoundError"):
        state(cache_of(project))


def test_a_row_of_an_installed_package_counts_by_its_version(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "acme_rows-2.1.dist-info").mkdir(parents=True)
    (site / "acme_rows-2.1.dist-info" / "METADATA").write_text("Name: acme_rows\nVersion: 2.1\n")
    (site / "acme_rows.py").write_text(ROW.replace("SOURCE", "ORDERS_SOURCE"))
    monkeypatch.syspath_prepend(str(site))
    project.spec_path.write_text(
        project.spec_path.read_text().replace("./warehouse.py:SOURCE", "acme_rows:ORDERS_SOURCE")
    )
    parts = cache_of(project).parts(INGEST, {})
    assert parts["library:acme_rows"] == "2.1"
    assert parts["source:acme_rows:ORDERS_SOURCE"] == "monday"
    assert any(part.startswith("code:") and part.endswith("acme_rows.py") for part in parts)
