"""Names of entry points become references, and what cannot be a name is refused with its cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import UsageError
from models.project_spec.entry_points import named_rows, trouble, with_references

METRICS, SOURCES = "loopline.metrics", "loopline.sources"
DECLARED = f"""\
[{METRICS}]
late = acme:METRIC
la.te = acme:METRIC
plain = acme
mae = acme:METRIC
[{SOURCES}]
trips = acme:load
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "acme-2.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 2.1\n")
    (folder / "entry_points.txt").write_text(DECLARED)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refuse(key: str, reason: str) -> UsageError:
    return UsageError(f"{key}: {reason}")


def test_a_name_becomes_its_reference_and_all_else_stays(base: Path) -> None:
    document = {
        "name": "trips",
        "data": {"source": "trips", "target": "late"},
        "goal": {"metric": "late", "direction": "minimize"},
        "model": {"net": "late"},
        "search": {"families": ["trees", 3]},
        "train": None,
    }
    expected = {
        **document,
        "data": {"source": "acme:load", "target": "late"},
        "goal": {"metric": "acme:METRIC", "direction": "minimize"},
    }
    assert with_references(document, base, refuse) == expected
    assert with_references(expected, base, refuse) == expected


def test_a_list_and_what_is_no_spec_are_left_to_their_own_checks(base: Path) -> None:
    for document in ({"goal": "late"}, {"goal": {"metric": 3}}, {"data": {"source": "trips.csv"}}):
        assert with_references(document, base, refuse) == document


def test_a_file_of_the_name_of_a_source_is_refused(base: Path) -> None:
    (base / "trips").touch()
    with pytest.raises(UsageError, match=r"data.source: 'trips' is a file .* write ./trips, or the reference"):
        with_references({"data": {"source": "trips"}}, base, refuse)


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("late", ""),
        ("la.te", "is no name: expected letters, digits, _ and -"),
        ("plain", "stands for 'acme', expected package.module:name"),
        ("mae", "is Loopline's own, and a name of acme 2.1 (loopline.metrics): write acme:METRIC for that one"),
    ],
)
def test_why_a_name_cannot_be_used(name: str, words: str) -> None:
    assert [row.origin for row in named_rows(METRICS)[name]] == ["acme 2.1"]
    assert words in trouble(METRICS, name)
    assert bool(words) == bool(trouble(METRICS, name))
