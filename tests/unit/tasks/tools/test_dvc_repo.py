"""The stages in `dvc.yaml`: added once, nothing of the user's lost. DVC itself is tests/integration/test_dvc.py's."""

from pathlib import Path

from ruamel.yaml import YAML

from tasks.host.workspace import CLONE, Project, Workspace
from tasks.tools import dvc_repo
from tests.conftest import MakeProject


def stages(folder: Path) -> dict[str, dict[str, object]]:
    return YAML(typ="safe").load((folder / "dvc.yaml").read_text())["stages"]


def test_projects_inside_share_one_matrix(workspace: Workspace, make_project: MakeProject) -> None:
    for name in ("one", "two", "one"):
        dvc_repo.add_stages(make_project(name))
    found = stages(workspace.root)
    assert set(found) == {"ingest", "prepare"}
    assert all(stage["matrix"] == {"project": ["one", "two"]} for stage in found.values())
    assert found["prepare"]["deps"] == ["projects/${item.project}/data/raw"]
    # Kept until the stage has run: one that cannot start leaves the data.
    assert found["ingest"]["outs"] == [{"projects/${item.project}/data/raw": {"persist": True}}]


def test_a_project_outside_has_its_own_stages(make_project: MakeProject, tmp_path: Path) -> None:
    project = make_project("far", folder=tmp_path / "far")
    dvc_repo.add_stages(project)
    found = stages(project.folder)
    assert found["ingest"]["cmd"].endswith("loopline stage ingest .")
    assert "matrix" not in found["ingest"]
    assert found["prepare"]["outs"] == [{"data/prepared": {"persist": True}}]


def test_what_the_user_wrote_stays(workspace: Workspace, make_project: MakeProject) -> None:
    path = workspace.root / "dvc.yaml"
    path.write_text("# mine\nstages:\n  own:\n    cmd: make own  # why\n    deps: [a]\n")
    dvc_repo.add_stages(make_project("tiny"))
    text = path.read_text()
    assert "# mine" in text
    assert "# why" in text
    assert stages(workspace.root)["own"] == {"cmd": "make own", "deps": ["a"]}


def test_a_complete_file_is_not_written_again(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    dvc_repo.add_stages(project)
    before = (workspace.root / "dvc.yaml").stat().st_mtime_ns
    dvc_repo.add_stages(project)
    assert (workspace.root / "dvc.yaml").stat().st_mtime_ns == before


def test_the_shipped_stages_are_those_that_a_run_would_add() -> None:
    for name in ("ingest", "prepare"):
        shipped = stages(CLONE)[name]
        made = dvc_repo._stage(Project(Workspace(CLONE), (CLONE / "projects" / "penguins").resolve()), name)
        assert {key: value for key, value in shipped.items() if key != "matrix"} == {
            key: value for key, value in made.items() if key != "matrix"
        }
