"""Where a model came from can be told, in git and outside it."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from models.installation import version_of
from tasks.mlflow import provenance
from tasks.mlflow.provenance import code_version, diff_of, project_version, shown


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("x = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def test_a_clean_checkout_is_its_commit(repository: Path) -> None:
    code = code_version(repository)
    assert code["commit"] == git(repository, "rev-parse", "HEAD")
    assert code["diff"] == ""
    assert shown(code) == code["commit"]


def test_what_was_not_committed_is_kept_and_marks_the_version(repository: Path) -> None:
    (repository / "models" / "net.py").write_text("x = 2\n")
    code = code_version(repository)
    assert "+x = 2" in code["diff"]
    assert shown(code) == f"{code['commit']}+{hashlib.sha256(code['diff'].encode()).hexdigest()[:12]}"


def test_the_diff_rebuilds_the_code(repository: Path) -> None:
    (repository / "models" / "net.py").write_text("x = 2\n")
    diff = code_version(repository)["diff"]
    git(repository, "checkout", "--quiet", ".")
    subprocess.run(["git", "-C", str(repository), "apply"], input=diff, text=True, check=True)
    assert (repository / "models" / "net.py").read_text() == "x = 2\n"


def test_outside_git_is_the_version_of_loopline_and_no_commit_of_a_project(tmp_path: Path) -> None:
    code = code_version(tmp_path)
    assert (code["commit"], code["diff"]) == ("", "")
    assert shown(code) == version_of("loopline")
    assert shown(project_version(tmp_path)) == "not in git"


def test_the_commit_of_a_team_is_not_that_of_a_loopline_below_it(repository: Path) -> None:
    program = repository / ".venv" / "program"
    program.mkdir(parents=True)
    assert code_version(program)["commit"] == ""
    (repository / "models" / "net.py").write_text("x = 2\n")
    project = project_version(repository / "models")
    assert project["commit"] == git(repository, "rev-parse", "HEAD")
    assert diff_of(code_version(program), project) == project["diff"], "what the team did not commit is kept"
    code = code_version(repository)
    assert diff_of(code, project) == code["diff"], "a clone's own project is not there twice"


def test_without_the_git_program(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert code_version(repository)["commit"] == ""


def test_the_lock_file_is_known_by_its_hash() -> None:
    lock = provenance.CLONE / "requirements.lock"
    assert code_version()["lock"] == hashlib.sha256(lock.read_bytes()).hexdigest()
