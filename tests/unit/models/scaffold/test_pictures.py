"""A first spec for pictures: their shape is guessed from their sizes, and the spec is one that is read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from PIL import Image
from ruamel.yaml import YAML

from models.project_spec.blocks import Spec
from models.scaffold.pictures import guess_picture_spec, picture_column
from models.scaffold.table import guess_target
from models.sources.read import read_source


def folder_of(place: Path, mode: str, *sizes: tuple[int, int]) -> Path:
    """Write a picture of each size into the folders of two classes."""
    for name in ("cat", "it's"):
        (place / name).mkdir(parents=True)
        for number, size in enumerate(sizes):
            Image.new(mode, size).save(place / name / f"{number}.png")
    return place


def spec_of(folder: Path, table: pa.Table, column: str = "image", target: str = "class") -> Spec:
    text = guess_picture_spec(table, column, folder, "pets", target, str(folder))
    return Spec.model_validate(YAML(typ="safe").load(text))


@pytest.mark.parametrize(
    ("mode", "sizes", "shape"),
    [
        ("RGB", [(400, 390), (380, 400)], (64, 64, 3, "crop")),
        ("L", [(28, 28)], (32, 32, 1, "crop")),
        ("RGB", [(320, 160)], (32, 64, 3, "crop")),
        ("RGBA", [(50, 300), (300, 50), (99, 100)], (64, 64, 3, "pad")),
    ],
)
def test_the_shape_follows_from_the_sizes(
    mode: str, sizes: list[tuple[int, int]], shape: tuple[int, int, int, str], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "pets", mode, *sizes)
    data = spec_of(folder, read_source(folder)).data
    assert data.image is not None
    assert (data.image.height, data.image.width, data.image.channels, data.image.resize) == shape
    assert (data.targets, data.kind, data.split.by, data.unlabelled) == (["class"], "image", "stratified", False)


def test_a_table_of_paths_is_told_by_the_files_that_it_names(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "pets", "RGB", (8, 8))
    table = pa.table({"age": [1.5, None], "photo": ["cat/0.png", "it's/0.png"]})
    assert picture_column(table, folder) == "photo"
    assert picture_column(table, tmp_path) is None
    data = spec_of(folder, table, "photo", "age").data
    assert data.image is not None
    assert (data.image.column, data.unlabelled) == ("photo", True)


def test_a_column_of_files_of_pictures_is_one_of_pictures_and_no_target(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "pets", "L", (28, 28))
    files = [path.read_bytes() for path in sorted(folder.rglob("*.png"))]
    table = pa.table({"kind": ["cat", "dog"], "photo": files})
    assert picture_column(table, tmp_path) == "photo"
    assert picture_column(pa.table({"photo": [b"no picture"]}), tmp_path) is None
    assert guess_target(table) == "kind"
    image = spec_of(tmp_path, table, "photo", "kind").data.image
    assert image is not None
    assert (image.column, image.height, image.channels) == ("photo", 32, 1)
