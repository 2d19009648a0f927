"""What own code was seen to read becomes parts of a key, without what the workspace itself writes."""

from pathlib import Path

import pytest

from models.pipeline.keys import CodeReader
from models.project_spec.own_reads import Reads, stamp_of
from tasks.host.workspace import Project
from tasks.loop.own_inputs import CHANGED, MOST_FILES, OwnInputs
from tests.conftest import MakeProject


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


@pytest.fixture
def own(project: Project) -> OwnInputs:
    from tasks.loop.step_cache import memories_of

    return OwnInputs(project, memories_of(project.workspace).hashes, CodeReader())


def read(*paths: Path, folders: tuple[Path, ...] = ()) -> Reads:
    return Reads({str(path): stamp_of(str(path)) for path in paths}, {str(path) for path in folders})


def write(path: Path, text: str = "1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_is_named_beside_the_spec_or_by_its_path_and_its_content_counts(
    project: Project, own: OwnInputs, tmp_path: Path
) -> None:
    inside, outside = write(project.folder / "a.json"), write(tmp_path / "b.json")
    parts = own.parts(read(inside, outside, project.folder / "none"), (), ())
    assert set(parts) == {"read:a.json", f"read:{outside}", "read:none"}
    assert parts["read:none"] is None
    assert own.now(parts) == parts
    write(inside, "2")
    assert {name for name, value in own.now(parts).items() if parts[name] != value} == {"read:a.json"}


def test_a_file_of_the_workspace_is_the_same_one_after_a_move(project: Project, own: OwnInputs) -> None:
    shared, tables = write(project.workspace.root / "shared.json"), project.workspace.root / "tables"
    parts = own.parts(read(shared, folders=(write(tables / "a.csv").parent,)), (), ())
    assert set(parts) == {"read:../../shared.json", "read:../../tables/"}
    assert own.now(parts) == parts
    write(shared, "2")
    assert {name for name, value in own.now(parts).items() if parts[name] != value} == {"read:../../shared.json"}


def test_what_the_workspace_writes_and_what_other_parts_name_is_left_out(project: Project, own: OwnInputs) -> None:
    ours = [project.raw, project.prepared / "rows.parquet", project.workspace.state / "x", project.folder / "data.csv"]
    code = write(project.folder / "net.py")
    assert own.parts(read(*map(write, ours), code), {str(code)}, [project.folder / "data.csv"]) == {}


def test_a_folder_counts_by_its_names_and_files_and_not_by_what_tools_write_into_it(
    project: Project, own: OwnInputs
) -> None:
    file = write(project.folder / "tables" / "a.csv")
    parts = own.parts(read(file, folders=(file.parent, project.folder)), (), ())
    assert set(parts) == {"read:tables/", "read:./"}
    for path in (".hidden", "__pycache__/a.pyc", "dvc.lock", "data/raw/raw.parquet"):
        write(project.folder / path)
    write(project.folder / "project.yaml", "name: other")
    assert own.now(parts) == parts
    write(file, "2")
    assert own.now(parts)["read:tables/"] != parts["read:tables/"]
    write(file, "1")
    assert own.now(parts) == parts
    write(project.folder / "tables" / "b.csv")
    assert own.now(parts)["read:tables/"] != parts["read:tables/"]


def test_many_files_of_a_folder_count_as_the_folder(project: Project, own: OwnInputs) -> None:
    files = [write(project.folder / "pictures" / f"{number}.png") for number in range(MOST_FILES + 1)]
    assert set(own.parts(read(*files), (), ())) == {"read:pictures/"}
    assert len(own.parts(read(*files[1:]), (), ())) == MOST_FILES


def test_a_file_that_was_changed_while_the_step_ran_is_owed(project: Project, own: OwnInputs) -> None:
    file = write(project.folder / "a.json")
    reads = read(file)
    write(file, "22")
    parts = own.parts(reads, (), ())
    assert parts == {"read:a.json": CHANGED}
    assert own.now(parts) != parts
