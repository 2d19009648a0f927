"""A spec is parsed once for all processes, and read again after a change."""

from __future__ import annotations

import errno
import json
import time
from pathlib import Path
from typing import Any

import pytest

from models.errors import LooplineError
from models.files import CLOCK_TICK_NS, Hashes
from models.project_spec import reader
from models.project_spec.blocks import Spec
from tasks.host.workspace import Project, Workspace
from tasks.operations import spec_cache
from tasks.operations.spec_cache import current_spec, current_specs
from tests.conftest import MakeProject


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were parsed."""
    paths: list[Path] = []
    parse = spec_cache.spec_document
    monkeypatch.setattr(spec_cache, "spec_document", lambda path, name: paths.append(path) or parse(path, name))
    return paths


def in_a_new_process(workspace: Workspace, *projects: Project) -> list[Spec | LooplineError]:
    spec_cache._read.clear()
    hashes = Hashes(workspace.cache / "hashes.json")
    specs = current_specs(workspace, [*projects], hashes)
    hashes.save()
    return specs


def test_a_file_is_parsed_again_only_after_a_change(
    workspace: Workspace, make_project: MakeProject, parsed: list[Path]
) -> None:
    first, second = make_project("first", "description: One.\n"), make_project("second")
    read = in_a_new_process(workspace, first, second)
    assert read == [first.spec(), second.spec()]
    assert in_a_new_process(workspace, first, second) == read
    assert parsed == [first.spec_path, second.spec_path]
    first.spec_path.write_text(first.spec_path.read_text().replace("One.", "Two."))
    assert in_a_new_process(workspace, first, second) == [first.spec(), read[1]]
    assert first.spec().description == "Two."
    assert parsed == [first.spec_path, second.spec_path, first.spec_path]


def test_one_that_cannot_be_read_is_an_error_beside_the_others(workspace: Workspace, make_project: MakeProject) -> None:
    good, bad, gone = make_project("good"), make_project("bad"), make_project("gone")
    bad.spec_path.write_text("data: {}\n")
    gone.spec_path.unlink()
    for _ in range(2):
        read, wrong, none = in_a_new_process(workspace, good, bad, gone)
        assert isinstance(read, Spec)
        assert "project.yaml:1: data.source: missing" in str(wrong)
        assert "no such file" in str(none)


def test_a_name_that_follows_the_folder_is_not_the_one_of_an_equal_file(
    workspace: Workspace, make_project: MakeProject
) -> None:
    here, copy = make_project("here"), make_project("copy")
    for project in (here, copy):
        lines = here.spec_path.read_text().splitlines()
        project.spec_path.write_text("\n".join(line for line in lines if not line.startswith("name:")))
    assert [one.name for one in in_a_new_process(workspace, here, copy) if isinstance(one, Spec)] == ["here", "copy"]


@pytest.mark.parametrize("damage", [{"specs": None}, {"specs": []}, "no specs", "a number"])
def test_a_damaged_store_only_costs_the_parsing(
    workspace: Workspace, make_project: MakeProject, damage: dict[str, object] | str
) -> None:
    project = make_project("tiny")
    in_a_new_process(workspace, project)
    path = workspace.cache / "specs.json"
    stored = json.loads(path.read_text())
    if isinstance(damage, dict):
        stored |= damage
    elif damage == "no specs":
        del stored["specs"]
    else:
        stored["specs"] = dict.fromkeys(stored["specs"], 5)
    path.write_text(json.dumps(stored))
    assert in_a_new_process(workspace, project) == [project.spec()]


def test_what_another_reader_read_is_parsed_again(
    workspace: Workspace,
    make_project: MakeProject,
    parsed: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = make_project("tiny")
    in_a_new_process(workspace, project)
    upgraded = tmp_path / "reader.py"
    upgraded.write_text("# another version\n")
    monkeypatch.setattr(reader, "__file__", str(upgraded))
    in_a_new_process(workspace, project)
    assert parsed == [project.spec_path] * 2


def test_one_that_this_user_may_not_read_is_an_error_beside_the_others(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, secret = make_project("good"), make_project("secret")
    for name in ("open", "read_text"):
        allowed = getattr(Path, name)

        def refusing(path: Path, *arguments: Any, allowed: Any = allowed, **more: Any) -> Any:
            if path == secret.spec_path:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return allowed(path, *arguments, **more)

        monkeypatch.setattr(Path, name, refusing)
    read, wrong = in_a_new_process(workspace, good, secret)
    assert isinstance(read, Spec)
    assert "project.yaml: cannot be read (Permission denied)" in str(wrong)


def test_a_change_within_the_same_tick_of_the_clock_is_seen(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project("tiny", "description: One.\n")
    stat, state_of = project.spec_path.stat(), Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda path, **more: stat if path == project.spec_path else state_of(path, **more)
    )
    monkeypatch.setattr(time, "time_ns", lambda: stat.st_ctime_ns + 1_000_000)
    assert current_spec(project).description == "One."
    project.spec_path.write_text(project.spec_path.read_text().replace("One.", "Two."))
    assert current_spec(project).description == "Two."


def test_a_process_reads_a_changed_file_again(make_project: MakeProject) -> None:
    project = make_project("tiny", "description: One.\n")
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    assert current_spec(project) is current_spec(project)
    project.spec_path.write_text(project.spec_path.read_text().replace("One.", "Two three."))
    assert current_spec(project).description == "Two three."
