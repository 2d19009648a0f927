"""A row of a team says how its source is read, when it changed, and which columns it has."""

from pathlib import Path

import pytest

from models.errors import UsageError, UserCodeError
from models.files import Hashes
from models.sources.own import declared, header, identity, is_read_again, read
from models.sources.source import Source

FILE = """
def read(project):
    return "rows.csv"
def identity(project):
    return (project / "stamp").read_text()
NAMES = ["x", "y"]
SOURCE = {row}
"""


def source_of(folder: Path, row: str) -> Source:
    (folder / "own.py").write_text(FILE.format(row=row))
    (folder / "stamp").write_text("monday")
    return Source("./own.py:SOURCE", folder)


def fetched(source: str) -> Path:
    raise AssertionError(source)


def test_a_row_is_read_and_says_its_identity_and_its_header(tmp_path: Path) -> None:
    source = source_of(tmp_path, "{'read': read, 'identity': identity, 'header': NAMES}")
    hashes = Hashes(tmp_path / "hashes.json")
    assert read(source, fetched).rows == tmp_path / "rows.csv"
    assert header(source) == ["x", "y"]
    assert identity(source, hashes, None) == {"source:./own.py:SOURCE": "monday"}
    assert not is_read_again(source)


def test_who_may_ask_nothing_gets_what_the_row_said_last(tmp_path: Path) -> None:
    source = source_of(tmp_path, "{'read': read, 'identity': identity}")
    (tmp_path / "stamp").unlink()
    hashes = Hashes(tmp_path / "hashes.json")
    part = "source:./own.py:SOURCE"
    assert identity(source, hashes, {part: "sunday", "spec:name": "x"}) == {part: "sunday"}
    assert identity(source, hashes, {}) == {part: None}
    with pytest.raises(UserCodeError, match="FileNotFoundError"):
        identity(source, hashes, None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{'identity': identity}", "'read' is missing"),
        ("{'read': read, 'identiy': identity}", "did you mean 'identity'"),
        ("{'read': read, 'growth': 3}", "growth: got 3, expected a function"),
        ("{'read': read, 'header': 'x'}", "header: got 'x', expected a list"),
        ("read", "expected it written out"),
    ],
)
def test_a_row_that_has_not_the_form_is_refused_before_it_runs(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"data.source: ./own.py:SOURCE.*{message}"):
        declared(source_of(tmp_path, row))


@pytest.mark.parametrize("value", ["object()", "{1, 2}"])
def test_an_identity_is_json(tmp_path: Path, value: str) -> None:
    source = source_of(tmp_path, "{'read': read, 'identity': identity}")
    own = tmp_path / "own.py"
    own.write_text(own.read_text().replace('(project / "stamp").read_text()', value))
    with pytest.raises(UserCodeError, match="expected a JSON value"):
        identity(source, Hashes(tmp_path / "hashes.json"), None)
