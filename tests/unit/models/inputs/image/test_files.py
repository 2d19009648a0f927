"""Columns of files, paths and arrays become plain bytes; a broken picture is named by its row."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image as Pillow

from models.errors import DataError
from models.inputs.image import files
from models.inputs.image.files import with_pixels, with_plain_bytes
from models.project_spec import own_reads
from models.project_spec.blocks import Image

IMAGE = Image(column="photo", height=2, width=3, channels=1, resize="crop")
LEVELS = np.arange(6, dtype=np.uint8).reshape(2, 3)


def png(levels: np.ndarray = LEVELS) -> bytes:
    stream = io.BytesIO()
    Pillow.fromarray(levels).save(stream, "PNG")
    return stream.getvalue()


def test_files_their_paths_and_plain_bytes_become_plain_bytes(tmp_path) -> None:
    (tmp_path / "seven.png").write_bytes(png())
    for value in (png(), "seven.png", str(tmp_path / "seven.png"), LEVELS.tobytes()):
        rows = with_pixels(pa.table({"photo": [value], "y": [1]}), IMAGE, tmp_path)
        assert rows.to_pylist() == [{"photo": LEVELS.tobytes(), "y": 1}]


def test_the_files_that_a_source_names_are_what_it_read(tmp_path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    with own_reads.collecting() as reads:
        with_pixels(pa.table({"photo": ["a.png"]}), IMAGE, tmp_path)
    assert list(reads.files) == [str(tmp_path / "a.png")]
    assert not reads.changed()


def test_arrays_of_a_frame_have_sizes_of_their_own(tmp_path) -> None:
    frame = pd.DataFrame({"photo": [LEVELS, np.full((9, 30, 3), 7, np.uint8)], "y": [0, 1]})
    assert with_plain_bytes(frame, IMAGE, tmp_path)["photo"].tolist() == [LEVELS.tobytes(), bytes([7] * 6)]
    assert with_plain_bytes(frame, IMAGE.model_copy(update={"resize": None}), tmp_path) is frame


def test_rows_stay_as_they_are_without_resize_or_without_the_column(tmp_path) -> None:
    rows = pa.table({"photo": [b"abc"]})
    assert with_pixels(rows, IMAGE.model_copy(update={"resize": None}), tmp_path) is rows
    other = pa.table({"x": [1]})
    assert with_pixels(other, IMAGE, tmp_path) is other


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "got null, expected the bytes of a file, its path as text, or an array"),
        (png()[:45], "bytes that cannot be read"),
        ("no.png", r" \(no.png\): No such file or directory"),
    ],
)
def test_a_broken_picture_is_named_by_its_row_with_a_cure(tmp_path, value, message) -> None:
    (tmp_path / "a.png").write_bytes(png())
    good = "a.png" if isinstance(value, str) else png()
    with pytest.raises(
        DataError, match=rf"data.image.column 'photo' cannot be read, row 12.*{message}.*or leave the row out"
    ):
        with_pixels(pa.table({"photo": [good, value]}), IMAGE, tmp_path, first_row=11)


def test_all_broken_pictures_are_counted_and_some_are_named(tmp_path) -> None:
    rows = pa.table({"photo": [png(), b"?", b"!", b"#", b"%", b"&"]})
    with pytest.raises(DataError, match=r"row 2: got 1 bytes .*; so are 4 others, row 3, row 4, row 5 and 1"):
        with_pixels(rows, IMAGE, tmp_path)


def test_many_pictures_are_the_same_as_few(tmp_path, monkeypatch) -> None:
    rows = pa.table({"photo": [png(), png(255 - LEVELS)] * 5})
    few = with_pixels(rows, IMAGE, tmp_path)
    monkeypatch.setattr(files, "MAPPED_ROWS", 3)
    assert with_pixels(rows, IMAGE, tmp_path).column("photo").to_pylist() == few.column("photo").to_pylist()


def test_paths_need_a_shape(tmp_path) -> None:
    rows = pa.table({"photo": ["a.png"]})
    with pytest.raises(DataError, match=r"holds paths of pictures, such as \['a.png'\].*: say data.image.resize"):
        with_pixels(rows, IMAGE.model_copy(update={"resize": None}), tmp_path)
