"""A team's repository begins whole or not at all, and no file of the team is overwritten."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path

import pytest

from models.errors import DataError, StoreError, UsageError
from models.project_spec.reader import read_spec
from tasks.host.workspace import HOME, Project, Workspace
from tasks.operations import team_repository
from tasks.operations.scaffold import copy_example
from tasks.operations.team_repository import begin, project_name
from tasks.tools.dvc_repo import add_stages

BASE = [".dvc/.gitignore", ".dvc/config", ".dvcignore", ".gitignore", "README.md", "loopline.txt", "projects/README.md"]
CI = [".github/workflows/loop.yml", ".gitlab-ci.yml", "ci/loops.sh"]
DOCKER = [".dockerignore", ".env", "Containerfile", "compose.yaml"]


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME, raising=False)


def churn(workspace: Workspace) -> Project:
    return copy_example(workspace, "churn", "table")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts[:1])
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False)


def test_a_repository_begins_with_a_project_and_without_a_commit(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "shop"
    repository = begin(folder, "churn", churn)
    assert (repository.written, repository.present) == ([*BASE, *CI, "projects/churn", "dvc.yaml"], [])
    assert {name.partition("/")[0] for name in contents(folder)} == {
        name.partition("/")[0] for name in repository.written
    }
    assert (read_spec(folder / "projects/churn/project.yaml").name, repository.project) == ("churn", "churn")
    lines = (folder / "loopline.txt").read_text().splitlines()
    assert lines[-1] == f"loopline=={importlib.metadata.version('loopline')}"
    assert "loopline run churn" in (folder / "README.md").read_text()
    assert git(folder, "log").returncode, "a commit that nobody asked for"
    ignored = [".loopline/state.db", "projects/churn/data/raw", ".env"]
    assert git(folder, "check-ignore", *ignored, "projects/churn/project.yaml").stdout.split() == ignored
    stages = (folder / "dvc.yaml").read_text()
    add_stages(Workspace(folder).project("churn"))
    assert stages == (folder / "dvc.yaml").read_text(), "the first loop has nothing to add"
    assert not [*tmp_path.rglob("*.tmp")]


def test_a_second_time_changes_nothing_and_says_what_is_there(tmp_path: Path) -> None:
    begin(tmp_path, "churn", churn)
    (tmp_path / "README.md").write_text("ours\n")
    (tmp_path / ".gitlab-ci.yml").unlink()
    before = contents(tmp_path)
    repository = begin(tmp_path, "churn", churn)
    assert contents(tmp_path) == before
    assert repository.written == []
    assert repository.present == [*BASE, *(name for name in CI if name != ".gitlab-ci.yml"), "projects/churn"]
    assert begin(tmp_path).project == "churn"


def test_files_of_the_team_stay(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("ours\n")
    (tmp_path / ".gitignore").write_text("*.log\n.env")
    repository = begin(tmp_path)
    assert (repository.present, repository.project) == (["README.md"], "")
    assert (tmp_path / "README.md").read_text() == "ours\n"
    lines = (tmp_path / ".gitignore").read_text().splitlines()
    assert lines[:2] == ["*.log", ".env"]
    assert (lines.count(".env"), lines.count(".loopline/")) == (1, 1)


@pytest.mark.parametrize(("path", "named"), [("ci/loops.sh", "ci/loops.sh"), ("projects", "projects/README.md")])
def test_a_file_of_another_origin_is_named_and_nothing_written(tmp_path: Path, path: str, named: str) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text("echo ours\n")
    with pytest.raises(UsageError, match=f"has {named}, which would be overwritten: move that away"):
        begin(tmp_path, has_docker=True)
    assert contents(tmp_path) == {path: b"echo ours\n"}


def test_a_place_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path / "shop")
    (tmp_path / "file").touch()
    (tmp_path / "itself").symlink_to("itself")
    for name, why in {
        "file": "is a file: name a folder",
        "itself": "is a link to itself: name a folder",
        "shop/projects/churn": "lies in the repository .*/shop: `loopline new NAME`",
        "a#b": "has '#' in its path",
    }.items():
        with pytest.raises(UsageError, match=why):
            begin(tmp_path / name)
        assert not (tmp_path / name).is_dir()
    for folder in (team_repository.CLONE, team_repository.CLONE / "new"):
        with pytest.raises(UsageError, match="lies in a clone of Loopline"):
            begin(folder)
    monkeypatch.setenv(HOME, str(tmp_path / "other"))
    with pytest.raises(UsageError, match=f"{HOME} names .*/other, which each later command would use: unset it"):
        begin(tmp_path / "new")


def test_a_folder_that_cannot_be_made_is_one_line() -> None:
    with pytest.raises(StoreError, match=r"^/proc/shop: /proc cannot be written \(.*\): name another folder$"):
        begin(Path("/proc/shop"))


def test_ignored_names_of_the_team_stay_byte_by_byte(tmp_path: Path) -> None:
    ours = b"*.log\r\n\xff\xfe\r\n.env"
    (tmp_path / ".gitignore").write_bytes(ours)
    begin(tmp_path)
    assert (tmp_path / ".gitignore").read_bytes().startswith(ours + b"\n# Of Loopline")


@pytest.mark.parametrize("name", [".gitignore", ".dvc"])
def test_a_link_to_nothing_is_a_file_of_another_origin(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("gone")
    with pytest.raises(UsageError, match=f"has {name}.*, which would be overwritten"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("is_new", [True, False])
def test_bad_data_leaves_the_folder_as_it_was(tmp_path: Path, is_new: bool) -> None:
    def fail(workspace: Workspace) -> Project:
        raise DataError("no such file")

    folder = tmp_path / "new" if is_new else tmp_path
    with pytest.raises(DataError):
        begin(folder, "churn", fail)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_one_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == "loopline.txt":
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            begin(tmp_path, "churn", churn)
    assert begin(tmp_path, "churn", churn).written == ["loopline.txt"]
    assert begin(tmp_path).written == []


def test_below_the_top_of_a_repository_is_no_second_one_and_no_ci(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert begin(tmp_path / "ml").written == BASE
    assert not (tmp_path / "ml" / ".git").exists()


def test_without_git_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not begin(tmp_path / "shop").has_git


def test_containers_are_added_with_secrets_of_their_own(tmp_path: Path) -> None:
    begin(tmp_path, "churn", churn)
    assert begin(tmp_path, has_docker=True).written == DOCKER
    lines = (tmp_path / ".env").read_text().splitlines()
    values = dict(line.split("=") for line in lines if not line.startswith("#"))
    secrets = [value for name, value in values.items() if name.endswith(("PASSWORD", "TOKEN"))]
    assert len({*secrets}) == 5
    assert all(len(secret) == 48 for secret in secrets)
    assert values["SERVED_PROJECT"] == "churn"
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


def test_a_clone_of_it_gets_its_own_secrets_and_keeps_the_compose_file(tmp_path: Path) -> None:
    begin(tmp_path, has_docker=True)
    (tmp_path / ".env").unlink()
    changed = (tmp_path / "compose.yaml").read_text() + "# ours\n"
    (tmp_path / "compose.yaml").write_text(changed)
    assert begin(tmp_path, has_docker=True).written == [".env"]
    assert (tmp_path / "compose.yaml").read_text() == changed
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    with pytest.raises(UsageError, match=r"has compose\.yaml, which would be overwritten"):
        begin(tmp_path, has_docker=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Customers 2026", "customers-2026"),
        ("2026", "project-2026"),
        ("Été", "ete"),
        ("...", "project"),
        ("a" * 90, "a" * 60),
    ],
)
def test_a_name_of_a_file_becomes_one_of_a_project(text: str, name: str) -> None:
    assert project_name(text) == name
