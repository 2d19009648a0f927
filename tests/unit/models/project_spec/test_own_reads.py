"""What own code opens, lists, imports and writes is seen; what we and libraries open for ourselves is not."""

import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.project_spec import own_reads
from models.project_spec.own_reads import Reads
from models.project_spec.references import call, resolve

USE = Callable[..., Reads]


@pytest.fixture
def use(tmp_path: Path) -> USE:
    """A function that runs `def use(here):` with this body as own code, and returns what it read."""

    def run(body: str, name: str = "own.py") -> Reads:
        lines = "\n    ".join(body.strip().splitlines())
        (tmp_path / name).write_text(f"def use(here):\n    {lines}\n")
        with own_reads.collecting() as reads:
            call(resolve(f"./{name}:use", tmp_path), f"./{name}:use", tmp_path)
        return reads

    return run


@pytest.mark.parametrize(
    "body",
    [
        "open(here / 'a.txt').close()",
        "(here / 'a.txt').read_bytes()",
        "import os; os.close(os.open(here / 'a.txt', os.O_RDONLY))",
        "import numpy; numpy.fromfile(here / 'a.txt', dtype='uint8')",
        "import pandas; pandas.read_csv(here / 'a.txt')",
        "import os; os.chdir(here); open('a.txt').close()",
        "import sqlite3; sqlite3.connect(here / 'a.txt').close()",
        "import threading; t = threading.Thread(target=(here / 'a.txt').read_text); t.start(); t.join()",
        "exec(\"open(here / 'a.txt').close()\")",
        "yes = lambda: (here / 'a.txt').read_text()\nyes()",
    ],
)
def test_a_file_is_seen_in_whichever_way_it_is_opened(
    use: USE, tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("" if "sqlite3" in body else "x\n1\n")
    assert str(tmp_path / "a.txt") in use(body).files


@pytest.mark.parametrize(
    "body",
    ["import os; os.listdir(here / 'f')", "list((here / 'f').glob('*.csv'))", "import os; [*os.walk(here / 'f')]"],
)
def test_a_listed_folder_is_seen(use: USE, tmp_path: Path, body: str) -> None:
    (tmp_path / "f").mkdir()
    assert use(body).folders == {str(tmp_path / "f")}


def test_a_file_that_is_not_there_is_seen(use: USE, tmp_path: Path) -> None:
    reads = use("try: open(here / 'none.txt')\nexcept OSError: pass")
    assert reads.files[str(tmp_path / "none.txt")] is None


@pytest.mark.parametrize(
    "body",
    [
        "(here / 'a.txt').write_text('1'); (here / 'a.txt').read_text()",
        "import os; (here / 't').write_text('1'); os.replace(here / 't', here / 'a.txt'); (here / 'a.txt').read_text()",
        "(here / 'd').mkdir(); (here / 'd' / 'a.txt').write_text('1'); [p.read_text() for p in (here / 'd').iterdir()]",
        "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'1'); f.seek(0); f.read()",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'1'); f.seek(0); f.read()",
        "open(here / 'a.log', 'a+').close()",
    ],
)
def test_what_the_code_wrote_itself_is_no_input(use: USE, body: str) -> None:
    reads = use(body)
    assert (reads.files, reads.folders) == ({}, set())


@pytest.mark.parametrize(
    "body", ["(here / 'd').mkdir(exist_ok=True)", "import tempfile; tempfile.TemporaryFile(dir=here / 'd').close()"]
)
def test_a_folder_that_was_there_is_not_the_codes_own(use: USE, tmp_path: Path, body: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_text("1")
    reads = use(f"{body}; [p.read_text() for p in (here / 'd').iterdir()]")
    assert (reads.files.keys(), reads.folders) == ({str(tmp_path / "d" / "a.txt")}, {str(tmp_path / "d")})


def test_a_database_of_the_code_counts_as_it_is_in_the_end_unless_it_is_opened_to_be_read_alone(
    use: USE, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"")
    write = "import sqlite3; c = sqlite3.connect(here / 'a.db'); c.execute('create table t (a)'); c.close()"
    assert (use(write).changed(), path.stat().st_size > 0) == ([], True)
    read = use("import sqlite3; sqlite3.connect(f\"file:{here / 'a.db'}?mode=ro\", uri=True).close()")
    path.write_bytes(b"")
    assert read.changed() == [str(path)]


def test_a_module_is_seen_when_it_was_found_by_name_and_what_it_reads_counts_each_time(
    use: USE, tmp_path: Path
) -> None:
    (tmp_path / "sought_by_name.py").write_text(
        "import pathlib\nX = (pathlib.Path(__file__).parent / 'x').read_text()\n"
    )
    (tmp_path / "x").write_text("1")
    body = "import importlib; importlib.import_module('sought_by_name')"
    first = use(body).files.keys()
    assert first >= {str(tmp_path / "sought_by_name.py"), str(tmp_path / "x")}
    assert use(body).files.keys() == first, "the module is loaded by now"


class Loader(importlib.machinery.SourceFileLoader):
    """A loader as beartype sets it for all modules."""

    def get_code(self, fullname: str) -> Any:
        return super().get_code(fullname)


def test_an_installed_package_is_seen_through_the_loader_of_a_library(
    use: USE, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in each process that has loaded Prefect."""
    for name in ("iniconfig", "iniconfig.exceptions", "iniconfig._parse"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(own_reads._owners, __file__, None)
    finder = importlib.machinery.FileFinder.path_hook((Loader, [".py"]))
    monkeypatch.setattr(sys, "path_hooks", [finder, *sys.path_hooks])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert use("import importlib; importlib.import_module('iniconfig')").packages == {"iniconfig"}


def test_a_listing_of_the_kernels_files_is_no_input(use: USE) -> None:
    """Some of them block whoever reads them; psutil lists them."""
    assert use("import os; os.listdir('/proc'); list(os.scandir('/sys'))").folders == set()


def test_an_installed_package_counts_by_its_name_and_no_file_of_it_or_of_python(
    use: USE, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("iniconfig", "iniconfig.exceptions", "iniconfig._parse", "colorsys"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    reads = use("import importlib, colorsys; importlib.import_module('iniconfig')")
    assert (reads.packages, reads.files) == ({"iniconfig"}, {})


@pytest.mark.parametrize("name", ["pkgutil.py", "importlib_metadata/__init__.py", "pkg_resources/__init__.py"])
def test_a_library_that_looks_for_packages_lists_no_input(
    use: USE, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plugins").mkdir()
    body = f"import os; exec(compile('for path in paths: os.listdir(path)', '/site-packages/{name}', 'exec'), names)"
    reads = use(f"names = {{'paths': [here, here / 'plugins']}}; names['os'] = __import__('os'); {body}")
    assert reads.folders == {str(tmp_path / "plugins")}, "a folder that is asked for by name is one"


def test_what_we_open_for_own_code_is_ours(use: USE, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert use("from models.files import read_json; read_json(here / 'a.json')").files == {}
    with own_reads.collecting() as reads:
        call(lambda: (tmp_path / "a.json").read_text(), "test")
    assert str(tmp_path / "a.json") in reads.files, "a test is nobody's of ours"


def test_a_file_that_another_changes_meanwhile_is_told_and_one_that_the_code_changes_is_not(
    use: USE, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1")
    reads = use("(here / 'a').read_text(); (here / 'b').read_text(); (here / 'b').write_text('22')")
    assert reads.changed() == []
    (tmp_path / "a").write_text("22")
    assert reads.changed() == [str(tmp_path / "a")]


def test_what_processes_saved_is_put_together(tmp_path: Path) -> None:
    def reads(**fields: Any) -> Reads:
        return Reads(**fields)

    (tmp_path / "trial").mkdir()
    own_reads.save(reads(files={"/a": [1, 2, 3]}, folders={"/f"}), tmp_path / own_reads.file_name("loop"))
    own_reads.save(reads(files={"/b": None}, packages={"yaml"}), tmp_path / "trial" / own_reads.file_name("rank-0"))
    loaded = own_reads.load(tmp_path)
    assert loaded == reads(files={"/a": [1, 2, 3], "/b": None}, folders={"/f"}, packages={"yaml"})
    own_reads.save(Reads(), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_nothing_is_collected_outside_and_an_inner_block_counts_for_the_outer() -> None:
    with own_reads.collecting() as outer:
        with own_reads.collecting() as inner:
            own_reads.credit(Reads(files={"/a": None}))
        own_reads.credit(Reads(files={"/b": None}))
    own_reads.credit(Reads(files={"/c": None}))
    assert (inner.files.keys(), outer.files.keys()) == ({"/a"}, {"/a", "/b"})
