"""A folder of pictures is a row a file, its class the folder; what cannot be learnt from is one line with its cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from models.errors import DataError, UsageError
from models.files import Hashes
from models.sources import local
from models.sources.local import header
from models.sources.read import read_source
from models.sources.row_batches import column_names, count_rows, row_batches
from models.sources.source import LastIngest, Source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return three pictures of two classes, and what is no data."""
    place = tmp_path / "pictures"
    for name in ("cat/b.png", "cat/new/a.JPG", "dog/c.webp"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (5, 4), "red").save(place / name)
    (place / "README.txt").write_text("about")
    (place / "cat" / "._b.png").write_text("litter")
    return place


def test_each_file_is_a_row_with_the_class_of_its_folder(folder: Path) -> None:
    assert read_source(folder).to_pylist() == [
        {"image": f"{folder}/cat/b.png", "class": "cat"},
        {"image": f"{folder}/cat/new/a.JPG", "class": "cat"},
        {"image": f"{folder}/dog/c.webp", "class": "dog"},
    ]
    assert header(Source("pictures", folder.parent)) == ["image", "class"]
    assert (column_names(folder / "cat/b.png"), count_rows(folder / "cat/b.png")) == (["image"], 1)


def test_rows_to_predict_name_pictures_from_their_folder_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    (rows,) = row_batches([Path("pictures/cat/b.png"), Path("pictures/dog/c.webp")], {}, 10, Path("pictures"))
    assert rows.to_pylist() == [{"image": "cat/b.png"}, {"image": "dog/c.webp"}]
    (row,) = row_batches([Path("pictures/cat/b.png")], {}, 10)
    assert row.to_pylist() == [{"image": "b.png"}]


def test_pictures_beside_the_folders_have_no_class(folder: Path) -> None:
    Image.new("L", (5, 4)).save(folder / "a.png")
    assert read_source(folder).column("class").to_pylist() == [None, "cat", "cat", "dog"]


def test_a_table_in_the_folder_is_read_in_its_place(folder: Path) -> None:
    (folder / "labels.csv").write_text("image,class\ncat/b.png,1\ndog/c.webp,0\n")
    assert read_source(folder).to_pylist() == [{"image": "cat/b.png", "class": 1}, {"image": "dog/c.webp", "class": 0}]


def test_new_pictures_are_counted(folder: Path, tmp_path: Path) -> None:
    source = Source("pictures", tmp_path)
    before = LastIngest("key", "digest", local.identity(source, Hashes(tmp_path / "h"), None), {"rows": 3})
    assert local.growth(source, before, Hashes(tmp_path / "h"), 4e9) is None
    Image.new("RGB", (5, 4)).save(folder / "dog" / "d.png")
    arrival = local.growth(source, before, Hashes(tmp_path / "h"), 4e9)
    assert arrival is not None
    assert (arrival.rows, arrival.text) == (1, "pictures: +1 rows")


def _litter(folder: Path) -> None:
    (folder / "cat" / "notes.doc").write_text("x")


def _table_in_a_class(folder: Path) -> None:
    (folder / "cat" / "notes.csv").write_text("x\n1\n")


def _one_class(folder: Path) -> None:
    (folder / "dog" / "c.webp").unlink()
    (folder / "dog").rmdir()


def _empty_class(folder: Path) -> None:
    (folder / "emu").mkdir()


def _link(folder: Path) -> None:
    (folder / "emu").symlink_to(folder / "cat")


def _split(folder: Path) -> None:
    (folder / "cat").rename(folder / "Train")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_litter, r"cat/notes\.doc is no picture .*: move it, or begin its name with _"),
        (_table_in_a_class, r"cat/notes\.csv is no picture .*, as 1 of 5 files: move it, or begin its name with _"),
        (_one_class, "got those of one class, 'cat', expected a folder for each of two classes or more"),
        (_empty_class, "the folder 'emu' holds no picture: put some there, or remove it"),
        (_link, "'emu' is a link, which is not followed: put a folder there"),
        (_split, r"expected a folder for each class, got 'Train', which is none: name the folder of the classes"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_before_a_run(
    spoil: Callable[[Path], None], message: str, folder: Path
) -> None:
    spoil(folder)
    with pytest.raises(UsageError, match=message):
        local.check(Source("pictures", folder.parent), False)
    with pytest.raises(DataError, match=message):
        read_source(folder)
