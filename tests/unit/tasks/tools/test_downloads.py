"""A copy is whole and of one version, goes on where it broke off, and is not fetched twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import DataError, StoreError
from tasks.tools import downloads
from tasks.tools.downloads import download
from tests.file_server import FileServer, file_server

ROWS = b"x,y\n" + b"".join(b"%d,%d\n" % (number, number % 7) for number in range(3000))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(downloads, "RANGE_BYTES", 4096)
    with file_server() as served:
        served.files["/rows.csv"] = ROWS
        yield served


def test_a_file_is_fetched_by_ranges_once(server: FileServer, tmp_path: Path) -> None:
    path = download(f"{server.address}/rows.csv", tmp_path)
    assert (path.name, path.read_bytes()) == ("rows.csv", ROWS)
    assert server.sent == len(ROWS)
    assert download(f"{server.address}/rows.csv", tmp_path).read_bytes() == ROWS
    assert server.sent == len(ROWS)
    server.files["/rows.csv"] = ROWS[:100]
    assert download(f"{server.address}/rows.csv", tmp_path).read_bytes() == ROWS[:100]


def test_a_server_without_ranges_sends_the_whole(server: FileServer, tmp_path: Path) -> None:
    server.knows_ranges = False
    assert download(f"{server.address}/rows.csv", tmp_path).read_bytes() == ROWS
    assert server.sent == len(ROWS)


def test_a_copy_that_broke_off_goes_on(server: FileServer, tmp_path: Path) -> None:
    def after_three_ranges() -> None:
        server.break_after = 10 if server.sent >= 3 * 4096 else None

    server.on_content = after_three_ranges
    with pytest.raises(StoreError, match=r"12,288 of [\d,]+ bytes are here, and the next run goes on with them"):
        download(f"{server.address}/rows.csv", tmp_path)
    assert not [*tmp_path.rglob("data/rows.csv")]
    server.on_content, server.break_after, server.sent = (lambda: None), None, 0
    assert download(f"{server.address}/rows.csv", tmp_path).read_bytes() == ROWS
    assert server.sent == len(ROWS) - 12_288


def test_a_file_that_changes_while_it_is_read_is_refused_and_read_anew(server: FileServer, tmp_path: Path) -> None:
    changed = ROWS.replace(b"1", b"2")

    def change() -> None:
        server.files["/rows.csv"] = changed if server.sent >= 4096 else server.files["/rows.csv"]

    server.on_content = change
    with pytest.raises(DataError, match="it changed while it was read: run again when it is written whole"):
        download(f"{server.address}/rows.csv", tmp_path)
    assert download(f"{server.address}/rows.csv", tmp_path).read_bytes() == changed


def test_a_page_that_says_that_it_is_a_table_is_refused(server: FileServer, tmp_path: Path) -> None:
    server.files["/rows.csv"] = b"<!DOCTYPE html><html>Please log in</html>"
    with pytest.raises(DataError, match="got a page of HTML, expected a table"):
        download(f"{server.address}/rows.csv", tmp_path)


def test_of_a_folder_only_what_is_new_is_fetched(tmp_path: Path) -> None:
    far, cache = tmp_path / "far", tmp_path / "cache"
    for city in ("Oslo", "Bern"):
        (far / f"city={city}").mkdir(parents=True)
        (far / f"city={city}" / "a.csv").write_text("x\n1\n")
    folder = download(f"file://{far}", cache)
    first = folder / "city=Oslo" / "a.csv"
    inode = first.stat().st_ino
    (far / "city=Bern" / "a.csv").unlink()
    (far / "city=Bern" / "b.csv").write_text("x\n2\n")
    assert download(f"file://{far}", cache) == folder
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.csv")) == [
        "city=Bern/b.csv",
        "city=Oslo/a.csv",
    ]
    assert first.stat().st_ino == inode
