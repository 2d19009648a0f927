"""Where things are: the workspace is found as a user expects, projects by name or path."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import StoreError, UsageError
from tasks.host.workspace import CLONE, Project, Workspace
from tasks.loop.history import LoopRecord, save_loop
from tests.conftest import MakeProject


def test_loopline_home_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match=r"LOOPLINE_HOME: got .*home, which is no folder"):
        Workspace.find(CLONE)
    (tmp_path / "home").mkdir()
    assert Workspace.find(CLONE).root == tmp_path / "home"


@pytest.mark.parametrize("mark", ["projects", ".loopline"])
def test_the_nearest_folder_above_that_is_a_workspace(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).mkdir()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert Workspace.find(deep).root == tmp_path


@pytest.mark.parametrize("name", ["a?b", "a#b", "100%"])
def test_a_path_that_cuts_the_addresses_of_databases_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name / "projects").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has '[?#%]' in its path.*: rename the folder"):
        Workspace.find(tmp_path / name)
    monkeypatch.setenv("LOOPLINE_HOME", str(tmp_path / name))
    with pytest.raises(UsageError, match=r"has '[?#%]' in its path.*: rename the folder"):
        Workspace.find(CLONE)
    assert [path.name for path in (tmp_path / name).iterdir()] == ["projects"]


def test_a_folder_without_a_workspace_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no.* is a workspace.*LOOPLINE_HOME, or begin one here by `loopline init`"):
        Workspace.find(tmp_path)
    (tmp_path / "projects").mkdir()
    assert Workspace.find(tmp_path).root == tmp_path
    assert Workspace.find(CLONE).root == CLONE


def test_a_project_by_name_by_folder_and_by_its_spec(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    inside = make_project("tiny")
    outside = make_project("far", folder=tmp_path / "elsewhere" / "far")
    assert workspace.project("tiny").folder == inside.folder
    assert workspace.project(str(outside.folder)).folder == outside.folder
    assert workspace.project(str(outside.spec_path)).folder == outside.folder
    assert inside.inside
    assert not outside.inside


def test_a_project_elsewhere_goes_by_its_name_once_a_loop_was_run_of_it(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    inside, outside = make_project("tiny"), make_project("far", folder=tmp_path / "elsewhere" / "far")
    folders = {"far": outside.folder, "tiny": outside.folder, "again": inside.folder, "gone": Path("/no/such")}
    for name, folder in folders.items():
        ran(workspace, name, folder)
    assert {name: project.folder for name, project in workspace.elsewhere().items()} == {"far": outside.folder}
    assert workspace.project("far").folder == outside.folder
    assert workspace.project("tiny").folder == inside.folder
    with pytest.raises(UsageError, match="did you mean 'far'"):
        workspace.project("faar")


def test_a_project_in_the_working_directory(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = make_project("far", folder=tmp_path / "far")
    monkeypatch.chdir(outside.folder)
    assert workspace.project(".").folder == outside.folder
    assert workspace.project(".").shown_spec == "project.yaml"


@pytest.mark.parametrize(
    ("asked", "words"),
    [("tinny", "did you mean 'tiny'"), ("zzz", "there are tiny"), ("tiny/data.csv", "project.yaml")],
)
def test_a_project_that_is_not_there_names_the_nearest(
    workspace: Workspace, make_project: MakeProject, asked: str, words: str
) -> None:
    make_project("tiny")
    with pytest.raises(UsageError, match=words):
        workspace.project(asked)


def test_an_empty_workspace_says_how_to_begin(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="loopline new"):
        workspace.project("tiny")


def test_projects_are_those_with_a_spec_by_name(workspace: Workspace, make_project: MakeProject) -> None:
    for name in ("b", "a"):
        make_project(name)
    (workspace.root / "projects" / "notes").mkdir()
    assert [project.folder.name for project in workspace.projects()] == ["a", "b"]


@pytest.mark.parametrize("name", ["home", "home/.loopline"])
def test_a_file_where_the_workspace_should_be_names_the_cure(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(StoreError, match=r"a file lies where a folder is expected.*LOOPLINE_HOME"):
        Workspace(tmp_path / "home").make()


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.fixture
def without_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("without_umask")
def test_other_accounts_cannot_enter_the_state_nor_what_dvc_opens_to_all(tmp_path: Path) -> None:
    made = Workspace(tmp_path)
    made.make()
    assert {folder: oct(mode_of(folder)) for folder in (made.state, made.site_cache, made.site_cache / "repo")} == {
        made.state: "0o700", made.site_cache: "0o700", made.site_cache / "repo": "0o700"
    }  # fmt: skip


@pytest.mark.usefixtures("without_umask")
def test_a_workspace_that_was_open_to_others_is_closed_by_the_next_command(tmp_path: Path) -> None:
    old = Workspace(tmp_path)
    folders = [old.state, old.site_cache, tmp_path / "projects" / "tiny" / "data", tmp_path / ".dvc" / "cache"]
    for folder in folders:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    old.make()
    assert [oct(mode_of(folder)) for folder in folders] == ["0o700"] * 4


@pytest.mark.usefixtures("without_umask")
def test_a_workspace_that_its_owner_opened_to_a_group_stays_so(tmp_path: Path) -> None:
    shared = Workspace(tmp_path)
    shared.state.mkdir()
    shared.state.chmod(0o2770)
    shared.make()
    assert oct(mode_of(shared.state)) == "0o2770"
    assert oct(mode_of(shared.site_cache)) == "0o2770"
    assert oct(os.umask(0)) == "0o2"


@pytest.mark.parametrize(("umask", "after"), [(0, 0o022), (0o002, 0o022), (0o022, 0o022), (0o077, 0o077)])
def test_no_process_writes_for_others_and_a_stricter_umask_stays(
    tmp_path: Path, without_umask: None, umask: int, after: int
) -> None:
    os.umask(umask)
    Workspace(tmp_path).make()
    assert oct(os.umask(0)) == oct(after)


def ran(workspace: Workspace, name: str, folder: Path) -> None:
    save_loop(workspace.state / "projects" / name, LoopRecord(f"{name}-1", "finished", folder=str(folder)))


def test_where_state_and_data_lie(make_project: MakeProject) -> None:
    project = make_project("tiny")
    assert project.raw == project.folder / "data" / "raw" / "raw.parquet"
    assert project.state("tiny") == project.workspace.root / ".loopline" / "projects" / "tiny"


def test_a_name_is_one_projects(workspace: Workspace, make_project: MakeProject, tmp_path: Path) -> None:
    project, copy = make_project("tiny"), make_project("tiny", folder=tmp_path / "copy")
    copy.refuse_namesake("tiny")
    ran(workspace, "tiny", project.folder)
    with pytest.raises(UsageError, match=r"the name 'tiny' is taken by .*tiny: choose another `name`"):
        copy.refuse_namesake("tiny")
    project.refuse_namesake("tiny")
    link = tmp_path / "link"
    link.symlink_to(project.folder)
    Project(workspace, link).refuse_namesake("tiny")
    project.spec_path.unlink()
    copy.refuse_namesake("tiny")


def test_a_copied_workspace_goes_on_beside_the_first(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    project = make_project("tiny")
    ran(workspace, "tiny", project.folder)
    shutil.copytree(workspace.root, tmp_path / "copied")
    Workspace(tmp_path / "copied").project("tiny").refuse_namesake("tiny")
    other = make_project("other")
    with pytest.raises(UsageError, match="is taken by"):
        other.refuse_namesake("tiny")


@pytest.mark.parametrize("layout", ["1", "4", "99", None])
def test_a_workspace_of_another_layout_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str | None
) -> None:
    monkeypatch.setenv("LOOPLINE_HOME", str(tmp_path))
    made = Workspace.find()
    made.make()
    assert Workspace.find() == made
    written = made.state / "layout"
    written.unlink() if layout is None else written.write_text(layout)
    before = sorted(made.state.rglob("*"))
    with pytest.raises(UsageError, match=r"has layout (1|4|99), expected 5: .* Move the folder away and run again"):
        Workspace.find()
    assert sorted(made.state.rglob("*")) == before
