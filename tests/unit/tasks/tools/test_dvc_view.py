"""What DVC's own files say, read without DVC."""

from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.tools import dvc_view
from tests.conftest import MakeProject


def test_the_hashes_are_those_of_the_lock_file(workspace: Workspace, make_project: MakeProject) -> None:
    lock = "schema: '2.0'\nstages:\n" + "".join(
        f"  {stage}@tiny:\n    cmd: x\n    outs:\n    - path: projects/tiny/data/{name}\n      md5: {name}.dir\n"
        for stage, name in dvc_view.STAGES.items()
    )
    (workspace.root / "dvc.lock").write_text(lock)
    assert dvc_view.hashes(make_project("tiny")) == {"raw": "raw.dir", "prepared": "prepared.dir"}


def test_the_default_remote_of_either_config(tmp_path: Path) -> None:
    folder = tmp_path / ".dvc"
    folder.mkdir()
    assert dvc_view.default_remote(tmp_path) == ""
    (folder / "config").write_text("[core]\n    remote = shared\n['remote \"shared\"']\n    url = s3://x%20y/z\n")
    assert dvc_view.default_remote(tmp_path) == "shared"
    (folder / "config.local").write_text("[core]\n    remote = mine\n")
    assert dvc_view.default_remote(tmp_path) == "mine"


@pytest.mark.parametrize("text", [None, "", "stages: [", "stages: {}", "stages: {ingest@tiny: {outs: []}}"])
def test_a_lock_file_that_does_not_name_the_data_names_nothing(
    workspace: Workspace, make_project: MakeProject, text: str | None
) -> None:
    if text is not None:
        (workspace.root / "dvc.lock").write_text(text)
    assert dvc_view.hashes(make_project("tiny")) == {}


def test_a_damaged_configuration_is_named_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_bytes(b"\x00\xffremote = shared\n")
    with pytest.raises(StoreError, match=r"config: expected DVC's configuration, got: .*: correct it"):
        dvc_view.default_remote(tmp_path)


def test_what_the_cache_has_lost_of_a_folder_is_named(workspace: Workspace, make_project: MakeProject) -> None:
    project, md5 = make_project("tiny"), workspace.root / "elsewhere" / "files" / "md5"
    (workspace.root / ".dvc").mkdir()
    (workspace.root / ".dvc" / "config").write_text("[cache]\n    dir = ../elsewhere\n")
    (md5 / "ab").mkdir(parents=True)
    assert dvc_view.lost_objects(project, ["abc.dir"]) == [workspace.root / ".dvc/../elsewhere/files/md5/ab/c.dir"]
    (md5 / "ab" / "c.dir").write_text('[{"md5": "abd", "relpath": "raw.parquet"}]')
    assert [path.name for path in dvc_view.lost_objects(project, ["abc.dir"])] == ["d"]
    (md5 / "ab" / "d").write_text("rows")
    assert dvc_view.lost_objects(project, ["abc.dir"]) == []
