import bz2
import gzip
import lzma
import struct
import zlib

import pytest

from models.errors import DataError
from models.sources.r_data import read_r
from models.sources.read import read_source


def word(number: int) -> bytes:
    return struct.pack(">i", number)


def strings(*texts: str) -> bytes:
    """An R character vector, as R serialises one."""
    return word(16) + word(len(texts)) + b"".join(word(0x00040009) + word(len(t)) + t.encode() for t in texts)


def integers(*numbers: int) -> bytes:
    return word(13) + word(len(numbers)) + b"".join(word(n) for n in numbers)


def named(names: list[str], values: list[bytes]) -> bytes:
    """A list with names: the flag 0x200 says that attributes follow, a pairlist of one."""
    symbol = word(1) + word(0x00040009) + word(5) + b"names"
    return word(0x213) + word(len(values)) + b"".join(values) + word(0x402) + symbol + strings(*names) + word(254)


def serialised(value: bytes) -> bytes:
    return b"X\n" + word(2) + word(0x00030600) + word(0x00020300) + value


def rda(**objects: bytes) -> bytes:
    """What `save` writes: a pairlist of the objects."""
    pairs = b"".join(
        word(0x402) + word(1) + word(0x00040009) + word(len(name)) + name.encode() + value
        for name, value in objects.items()
    )
    return b"RDX2\n" + serialised(pairs + word(254))


PACKED = {
    "zlib": zlib.compress,
    "bzip2": lambda part: b"2" + bz2.compress(part),
    "xz": lambda part: (
        b"Z"
        + lzma.compress(part, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}])
    ),
    "plain": lambda part: b"0" + part,
}


@pytest.mark.parametrize("packing", PACKED)
def test_a_packages_data_is_read_object_by_object(tmp_path, packing):
    parts = [serialised(strings("It is a truth", "")), serialised(strings("Sir Walter"))]
    content = [struct.pack(">I", len(part)) + PACKED[packing](part) for part in parts]
    sizes = [len(part) for part in content]
    places = named(["pride", "persuasion"], [integers(0, sizes[0]), integers(sizes[0], sizes[1])])
    (tmp_path / "Rdata.rdb").write_bytes(b"".join(content))
    (tmp_path / "Rdata.rdx").write_bytes(gzip.compress(serialised(named(["variables"], [places]))))
    found = read_r(tmp_path / "Rdata.rdb")
    assert {name: list(value) for name, value in found.items()} == {
        "pride": ["It is a truth", ""],
        "persuasion": ["Sir Walter"],
    }


def test_text_vectors_become_rows(tmp_path):
    (tmp_path / "a.rda").write_bytes(gzip.compress(rda(one=strings("x", "y"), two=strings("z"))))
    table = read_source(tmp_path / "a.rda")
    assert table.to_pydict() == {"file": ["one", "one", "two"], "line": [1, 2, 1], "text": ["x", "y", "z"]}


def test_objects_that_make_no_table_are_named(tmp_path):
    (tmp_path / "a.rda").write_bytes(gzip.compress(rda(one=strings("x"), numbers=integers(1, 2))))
    with pytest.raises(DataError, match=r"holds one \(ndarray\), numbers \(ndarray\), expected one data frame"):
        read_source(tmp_path / "a.rda")


@pytest.mark.parametrize("content", [b"", b"not R's", gzip.compress(rda(one=strings("x")), mtime=0)[:30]])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "a.rda").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read as R's data .*copy or make it again"):
        read_r(tmp_path / "a.rda")
