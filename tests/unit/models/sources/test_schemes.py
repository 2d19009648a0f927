"""What a text of `data.source` names, and what each sort says of a change."""

from pathlib import Path

import pytest

from models.files import Hashes
from models.sources.schemes import SCHEMES, scheme_of
from models.sources.source import Source


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.csv", "file or folder"),
        ("~/parts", "file or folder"),
        ("2024-05-01T10:30.csv", "file or folder"),
        ("pypi:a==1!b.csv", "package"),
        ("debian:a!usr/b", "package"),
        ("./own.py:load", "own code"),
        ("acme.orders:load", "own code"),
        ("./own.py:SOURCE", "own code"),
        ("acme.orders:DAILY_SOURCE", "own code"),
        ("SOURCE", "file or folder"),
    ],
)
def test_a_text_names_one_sort(text: str, name: str) -> None:
    assert scheme_of(text).name == name


def test_each_sort_has_a_name_and_a_form_of_its_own() -> None:
    assert len({row.name for row in SCHEMES}) == len({row.form for row in SCHEMES}) == len(SCHEMES)


def test_only_what_this_machine_holds_or_a_row_tells_is_in_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "own.py").write_text("def load(): raise ValueError\nSOURCE = {'read': load}\n")
    hashes = Hashes(tmp_path / "hashes.json")
    texts = ("a.csv", "away.csv", "pypi:a==1!b.csv", "./own.py:load", "./own.py:SOURCE")
    parts = [scheme_of(text).identity(Source(text, tmp_path), hashes, None) for text in texts]
    assert parts == [{"file:a.csv": hashes.of(tmp_path / "a.csv")}, {"file:away.csv": None}, {}, {}, {}]
    read_again = [text for text in texts if scheme_of(text).is_read_again(Source(text, tmp_path))]
    assert read_again == ["./own.py:load", "./own.py:SOURCE"]
