"""DVC's own program agrees with what a commit left: with git and without, inside the workspace and elsewhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from models.errors import StoreError
from models.sources.read import write_table
from tasks.host.workspace import Project, Workspace
from tasks.tools import dvc_remote, dvc_repo, dvc_view
from tests import warm
from tests.conftest import MakeProject
from tests.running import mounted, write_program
from tests.wide import wide

# What DVC does as it notes what it linked: a new connection to its cache of links. On a full disk this never ends.
WRITE_TO_FULL_DISK = """
import diskcache
links = diskcache.Cache("links")
links["one"] = 1
links.close()
with open("filler", "wb", buffering=0) as filler:
    while True:
        try:
            filler.write(bytes(4096))
        except OSError:
            break
links["two"] = 2
"""


@pytest.fixture(autouse=True)
def _warm_dvc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc_repo, "PROGRAM", warm.caller_of(warm.DVC, warm.server().address))


def dvc(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*dvc_repo.PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def write_data(project: Project, text: str = "data") -> None:
    project.raw.parent.mkdir(parents=True, exist_ok=True)
    project.raw.write_text(text)
    project.prepared.mkdir(exist_ok=True)
    (project.prepared / "rows.parquet").write_text(text)
    (project.prepared / "preparation.json").write_text("{}")


def status(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(dvc(folder, "status", "--json"))
    return found


@pytest.fixture(params=["git", wide("no git"), wide("copied clone")])
def place(request: pytest.FixtureRequest, workspace: Workspace) -> Workspace:
    """A workspace in a git clone, in a plain folder, and in a clone that lost its .git."""
    if request.param == "git":
        git(workspace.root, "init", "--quiet")
    elif request.param == "copied clone":
        (workspace.root / ".dvc").mkdir()
        (workspace.root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    return workspace


def test_after_a_commit_the_status_is_clean_and_a_change_is_seen(place: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    write_data(project)
    first = dvc_repo.commit(project, "tiny-1")
    assert first["raw"].endswith(".dir")
    assert first["remote"] == ""
    assert status(place.root) == {}
    assert first == {**dvc_view.hashes(project), "remote": "", "is_cached": True}
    write_data(project, "other")
    assert "ingest@tiny" in status(place.root)
    second = dvc_repo.commit(project, "tiny-1")
    assert second["raw"] != first["raw"]
    assert status(place.root) == {}


def test_linked_data_lies_on_the_disk_once_and_a_later_ingest_leaves_the_version(
    workspace: Workspace, make_project: MakeProject
) -> None:
    project = make_project("tiny")
    write_data(project)
    (workspace.root / ".dvc").mkdir()
    (workspace.root / ".dvc" / "config").write_text("[cache]\n    type = hardlink,copy\n")
    raw = dvc_repo.commit(project, "tiny-1")["raw"]
    cached = dvc_view.cached_file(project, str(raw), "raw.parquet")
    assert cached is not None
    assert cached.samefile(project.raw)
    write_table(pa.table({"x": [1]}), project.raw)
    assert cached.read_text() == "data"
    assert dvc_repo.commit(project, "tiny-2")["raw"] != raw
    assert status(workspace.root) == {}


def test_dvcs_own_commands_show_what_a_loop_reached(place: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    (project.folder / "dvc.yaml").write_text("# mine\nmetrics: [own.json]\n")
    (project.folder / "own.json").write_text('{"x": 1}')
    write_data(project)
    dvc_repo.commit(project, "tiny-1")
    for accuracy in (0.7, 0.8):  # a later loop's results replace those of the earlier one
        epochs = [{"train_loss": 0.5, "val_accuracy": accuracy, "device_s": 1.0}] * 2
        dvc_repo.write_results(project, "tiny-1", {"test": {"accuracy": accuracy}}, epochs)
    metrics = json.loads(dvc(place.root, "metrics", "show", "--json"))[""]["data"]
    shown = metrics["projects/tiny/metrics.json"]["data"]
    assert (shown["loop"], shown["test"]) == ("tiny-1", {"accuracy": 0.8})
    assert metrics["projects/tiny/own.json"]["data"] == {"x": 1}
    assert status(place.root) == {}
    assert (project.folder / "dvc.yaml").read_text().startswith("# mine")
    (plots,) = json.loads(dvc(place.root, "plots", "show", "--json"))["data"].values()
    assert all(name in json.dumps(plots) for name in ("train_loss", "val_accuracy", "epoch"))
    if (place.root / ".git").exists():
        git(place.root, "add", "--all")
        git(place.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "a loop")
        (commit, *_) = json.loads(dvc(place.root, "exp", "show", "--json"))
        assert commit["data"]["metrics"]["projects/tiny/metrics.json"]["data"]["test"] == {"accuracy": 0.8}


def test_the_same_data_is_the_same_version_and_lost_data_comes_back(
    workspace: Workspace, make_project: MakeProject
) -> None:
    git(workspace.root, "init", "--quiet")
    project = make_project("tiny")
    write_data(project)
    first = dvc_repo.commit(project, "tiny-1")
    assert dvc_repo.commit(project, "tiny-1") == first
    project.raw.unlink()
    dvc(workspace.root, "checkout", "--quiet")
    assert project.raw.read_text() == "data"
    dirty = git(workspace.root, "status", "--porcelain", "--untracked-files=all")
    assert ".parquet" not in dirty, "data is DVC's, not git's"


def test_the_program_of_the_guide_reads_the_data_back_without_dvc(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    """As back-up.md shows it, by a Python that sees no installed package."""
    project = make_project("tiny")
    write_data(project)
    (project.prepared / "words").mkdir()
    (project.prepared / "words" / "städte.bin").write_bytes(bytes(range(256)))
    stored = dvc_repo.commit(project, "tiny-1")
    page = Path(__file__).parents[2] / "docs" / "how-to" / "back-up.md"
    (code,) = re.findall(r"```python\n# read_back.py\n(.*?)```", page.read_text(), re.DOTALL)
    program, cache = tmp_path / "read_back.py", workspace.root / ".dvc" / "cache"
    program.write_text(code)

    def read_back(target: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", program, cache, workspace.root / "dvc.lock", target]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert read_back(tmp_path / "restored").stderr == ""
    restored, data = tmp_path / "restored" / "projects" / "tiny" / "data", project.data
    names = {path.relative_to(data) for path in data.rglob("*") if path.is_file() and path.name != ".gitignore"}
    assert {path.relative_to(restored) for path in restored.rglob("*") if path.is_file()} == names
    assert all((restored / name).read_bytes() == (data / name).read_bytes() for name in names)
    digest = str(stored["raw"])
    listing = cache / "files" / "md5" / digest[:2] / digest[2:]
    listing.chmod(0o600)
    listing.write_text("[]")
    assert f"{digest}: its file in {cache} is damaged" in read_back(tmp_path / "again").stderr


def test_from_the_remote_goes_only_what_nothing_needs(workspace: Workspace, tmp_path: Path) -> None:
    """Each folder has a file of its own, and one that both have; the cache has no list of what stays."""
    root, far = workspace.root, tmp_path / "far" / "files" / "md5"
    (root / ".dvc").mkdir()
    (root / ".dvc" / "config").write_text(
        f"[core]\n    no_scm = true\n    remote = far\n['remote \"far\"']\n    url = {tmp_path / 'far'}\n"
    )
    for letter in "ab":
        listing = json.dumps([{"md5": letter * 32, "relpath": "own"}, {"md5": "c" * 32, "relpath": "shared"}])
        for name, content in ((letter * 32, "own"), ("c" * 32, "shared"), (f"{letter * 31}f.dir", listing)):
            (far / name[:2]).mkdir(parents=True, exist_ok=True)
            (far / name[:2] / name[2:]).write_text(content)
    old, needed = f"{'a' * 31}f.dir", f"{'b' * 31}f.dir"
    dvc_remote.delete(root, {old, f"{'d' * 31}f.dir"}, {needed})
    left = {path.parent.name + path.name for path in far.rglob("*") if path.is_file()}
    assert left == {needed, "b" * 32, "c" * 32}
    with pytest.raises(StoreError, match=f"lacks the list of the files of {old}.*the data stays there"):
        dvc_remote.delete(root, {needed}, {old})
    assert left == {path.parent.name + path.name for path in far.rglob("*") if path.is_file()}


@pytest.mark.wide  # so has a torn lock file, below
def test_two_projects_have_versions_of_their_own(workspace: Workspace, make_project: MakeProject) -> None:
    one, two = make_project("one"), make_project("two")
    write_data(one, "1")
    write_data(two, "2")
    first = dvc_repo.commit(one, "tiny-1")
    second = dvc_repo.commit(two, "tiny-1")
    assert first["raw"] != second["raw"]
    assert dvc_view.hashes(one)["raw"] == first["raw"]
    assert status(workspace.root) == {}
    assert "ingest@one" in dvc(workspace.root, "dag")


@pytest.mark.parametrize("kept", [wide(0), 100])
def test_a_lock_file_that_a_kill_left_torn_is_put_back(
    kept: int, workspace: Workspace, make_project: MakeProject
) -> None:
    """DVC truncates the file and then writes it."""
    first, second = make_project(name="first"), make_project(name="second")
    for project in (first, second, first):
        write_data(project, project.folder.name)
        dvc_repo.commit(project, "loop-1")
    before, path = dvc_view.hashes(second), workspace.root / "dvc.lock"
    path.write_text(path.read_text()[:kept].rstrip("\n"))
    write_data(first, "other")
    dvc_repo.commit(first, "loop-2")
    assert dvc_view.hashes(second) == before != dvc_view.hashes(first)
    assert status(workspace.root) == {}


@pytest.mark.wide
def test_a_lock_file_torn_in_the_first_commit_is_written_anew(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project()
    (workspace.root / "dvc.lock").touch()
    write_data(project)
    dvc_repo.commit(project, "loop-1")
    assert status(workspace.root) == {}


@pytest.mark.parametrize("within", [wide("nothing"), wide("git"), "dvc"])
def test_a_project_elsewhere_keeps_to_itself(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path, within: str
) -> None:
    home = tmp_path / "elsewhere"
    home.mkdir()
    if within != "nothing":
        git(home, "init", "--quiet")
    if within == "dvc":
        dvc(home, "init", "--quiet")
    project = make_project("far", folder=home / "deep" / "far")
    write_data(project)
    made = dvc_repo.commit(project, "tiny-1")
    assert made["prepared"] == dvc_view.hashes(project)["prepared"]
    assert status(project.folder) == {}
    assert not (workspace.root / ".dvc").exists()
    assert (home / ".dvc").exists() is (within == "dvc")


def test_data_is_pushed_to_the_remote_that_is_set(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    project = make_project("tiny")
    write_data(project)
    dvc_repo.commit(project, "tiny-1")
    remote = tmp_path / "remote"
    dvc(workspace.root, "remote", "add", "--default", "shared", str(remote))
    assert dvc_repo.commit(project, "tiny-1")["remote"] == "shared"
    assert len([path for path in remote.rglob("*") if path.is_file()]) >= 3
    project.raw.unlink()
    for path in (workspace.root / ".dvc" / "cache" / "files").rglob("*"):
        if path.is_file():
            path.unlink()
    dvc(workspace.root, "pull", "--quiet")
    assert project.raw.read_text() == "data"


def test_a_remote_that_cannot_be_written_is_a_store_error(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    project = make_project("tiny")
    write_data(project)
    dvc_repo.commit(project, "tiny-1")
    (tmp_path / "file").write_text("")
    dvc(workspace.root, "remote", "add", "--default", "broken", str(tmp_path / "file" / "remote"))
    write_data(project, "new")
    with pytest.raises(StoreError, match=r"`dvc push` in .* failed: .*the data in data/ is whole"):
        dvc_repo.commit(project, "tiny-1")
    assert project.raw.read_text() == "new"


def test_a_broken_dvc_yaml_is_a_store_error(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    write_data(project)
    dvc_repo.commit(project, "tiny-1")
    (workspace.root / ".dvc" / "config").write_text("no config [")
    with pytest.raises(StoreError):
        dvc_repo.commit(project, "tiny-1")


def test_a_stage_that_cannot_start_leaves_the_data(workspace: Workspace, make_project: MakeProject) -> None:
    """DVC would have removed it first."""
    project = make_project("tiny")
    write_data(project)
    dvc_repo.commit(project, "tiny-1")
    write_data(project, "changed")
    command = [*dvc_repo.PROGRAM, "repro", "--quiet"]
    done = subprocess.run(command, cwd=workspace.root, env={**os.environ, "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode != 0
    assert project.raw.read_text() == "changed"


def test_dvc_repro_carries_out_our_stages_and_leaves_nothing_to_do(
    workspace: Workspace, make_project: MakeProject, tmp_path: Path
) -> None:
    """The stages name `loopline`; one without its imports stands for it in the PATH."""
    write_program(tmp_path)
    project = make_project("tiny")
    dvc_repo._ensure_repository(workspace.root)
    dvc_repo.add_stages(project)
    os.environ["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    dvc(workspace.root, "repro", "--quiet")
    assert project.raw.is_file()
    assert (project.prepared / "preparation.json").is_file()
    assert status(workspace.root) == {}
    from models.project_spec.reader import read_spec
    from tasks.loop.step_cache import StepCache

    planned = {item.step: item.state for item in StepCache(project, read_spec(project.spec_path)).plan()}
    assert (planned["ingest"], planned["prepare"]) == ("done", "done")


def test_dvc_that_does_not_end_on_a_full_disk_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dvc_repo, "PROGRAM", (sys.executable, "-c", WRITE_TO_FULL_DISK))
    monkeypatch.setattr(dvc_repo, "LOOK_S", 0.5)
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=400k", "tmpfs"):
        with pytest.raises(StoreError, match="the disk is full: free some space and run again"):
            dvc_repo._dvc(tmp_path, "commit")
        assert (tmp_path / "filler").stat().st_size > 0
