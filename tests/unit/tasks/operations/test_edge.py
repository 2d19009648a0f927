import json
from pathlib import Path

import pytest

from models.errors import StoreError, UsageError
from models.export.bundle import FILES
from models.files import sha256
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.operations.edge import export_edge
from tests.serving import crown


@pytest.fixture
def crowned(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace whose registry has versions 1 and 2 of `tiny`, of which 2 is the champion."""
    workspace.make()
    for name, value in stores.environment(workspace).items():
        monkeypatch.setenv(name, value)
    for number in ("1", "2"):
        crown(workspace, "tiny", number)
    return workspace


def test_the_champion_becomes_a_folder(crowned: Workspace, tmp_path: Path) -> None:
    told = export_edge(crowned, "tiny", tmp_path / "made" / "edge")
    folder = Path(told["folder"])
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert told["version"] == "2"
    assert told["sha256"] == sha256(folder / "model.onnx")
    assert told["sha256"] in (folder / "README.md").read_text()
    assert json.loads((folder / "schema.json").read_text())["title"].startswith("tiny version 2")


def test_another_version_takes_the_place_of_a_bundle(crowned: Workspace, tmp_path: Path) -> None:
    export_edge(crowned, "tiny", tmp_path / "edge")
    assert export_edge(crowned, "tiny", tmp_path / "edge", "1")["version"] == "1"
    assert "version 1" in (tmp_path / "edge" / "README.md").read_text()


def test_a_folder_with_something_else_in_it_is_left_alone(crowned: Workspace, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="holds thesis"):
        export_edge(crowned, "tiny", tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        export_edge(crowned, "tiny", tmp_path / "thesis.tex")
    with pytest.raises(StoreError, match=r"/proc/edge: no folder can be made there .*: name another"):
        export_edge(crowned, "tiny", Path("/proc/edge"))


def test_a_version_that_is_not_there_is_told(crowned: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no version '9'"):
        export_edge(crowned, "tiny", tmp_path / "edge", "9")
    assert not (tmp_path / "edge").exists()
