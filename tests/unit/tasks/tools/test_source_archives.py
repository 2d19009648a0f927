"""A package index of the test's own, over HTTP: what a source archive holds is never run."""

import hashlib
import io
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.tools.packages import open_package, read_member
from tasks.tools.source_archives import download

PIP = (sys.executable, "-m", "pip")
Put = Callable[[str], Path]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which its `simple/` is an index."""
    folder = tmp_path / "served"
    (folder / "simple").mkdir(parents=True)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


@pytest.fixture
def ran(index: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index holds `small` 1.0 as a source archive alone, which would write this file if it were run."""
    folder, address = index
    ran = tmp_path / "ran"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        files = {"setup.py": f"open({str(ran)!r}, 'w')", "data.csv": "x\n1\n"}
        for name, text in files.items():
            member = tarfile.TarInfo(f"small-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    page = folder / "simple" / "small"
    page.mkdir()
    (page / "small-1.0.tar.gz").write_bytes(content.getvalue())
    sha256 = hashlib.sha256(content.getvalue()).hexdigest()
    (page / "index.html").write_text(f'<a href="small-1.0.tar.gz#sha256={sha256}">small-1.0.tar.gz</a>')
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return ran


def test_a_source_archive_is_downloaded_and_not_run(ran: Path, tmp_path: Path) -> None:
    archive = open_package("pypi", "small", "1.0", tmp_path / "cache")
    assert read_member(archive, "small-1.0/data.csv") == b"x\n1\n"
    assert not ran.exists()


def test_a_version_is_named_in_any_of_its_forms(ran: Path, tmp_path: Path) -> None:
    assert download("Small", "1.0.0", tmp_path, PIP)
    assert not download("small", "1.1", tmp_path, PIP)
    assert not download("smaller", "1.0", tmp_path, PIP)


def test_an_archive_that_is_not_the_one_of_the_index_is_refused(
    ran: Path, index: tuple[Path, str], tmp_path: Path
) -> None:
    (index[0] / "simple" / "small" / "small-1.0.tar.gz").write_bytes(b"another")
    with pytest.raises(StoreError, match=r"pypi:small: .*nothing was stored"):
        open_package("pypi", "small", "1.0", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_an_index_that_does_not_answer_is_told(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(
        StoreError, match=r"pypi:small: no answer \(ConnectionError of an index\): is this machine offline"
    ):
        download("small", "1.0", tmp_path, PIP)


def test_further_indexes_are_asked_and_folders_are_left_to_pip(
    ran: Path, index: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index[0] / "other").mkdir()
    monkeypatch.setenv("PIP_INDEX_URL", index[1].replace("simple", "other"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {index[1]}")
    assert download("small", "1.0", tmp_path, PIP)
