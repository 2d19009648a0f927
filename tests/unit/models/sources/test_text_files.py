import gzip

import pytest

from models.errors import DataError
from models.sources.text_files import read_text, text_files


def test_lines_end_with_a_feed_whatever_stands_before_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffOne\r\n\r\ntwo\x0cstill two\nthree é".encode())
    table = read_text(path)
    assert table.to_pydict() == {
        "file": ["a.txt"] * 4,
        "line": [1, 2, 3, 4],
        "text": ["One", "", "two\x0cstill two", "three é"],
    }


def test_a_last_feed_begins_no_line(tmp_path):
    (tmp_path / "a.txt").write_text("x\n\n")
    assert read_text(tmp_path / "a.txt").column("text").to_pylist() == ["x", ""]


def test_a_folder_is_read_file_by_file(tmp_path):
    folder = tmp_path / "books"
    (folder / "later").mkdir(parents=True)
    (folder / "later" / "b.txt").write_text("b")
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"a\nA"))
    (folder / "notes.md").write_text("no")
    table = read_text(folder)
    assert table.column("text").to_pylist() == ["a", "A", "b"]
    assert table.column("file").to_pylist() == ["books/a.txt.gz", "books/a.txt.gz", "books/later/b.txt"]
    assert [path.name for path in text_files(folder)] == ["a.txt.gz", "b.txt"]


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"", "a.txt", "got no text"),
        (b" \n\n", "a.txt", "got no text"),
        (b"one\ntw\xe9\n", "a.txt", r"a\.txt:2: byte 0xe9 at offset 6 is not UTF-8: .*iconv"),
        (gzip.compress(b"text" * 99, mtime=0)[:20], "a.txt.gz", "cannot be unpacked"),
        (b"plain", "a.txt.gz", "cannot be unpacked"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(tmp_path, content, name, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_text(tmp_path / name)
