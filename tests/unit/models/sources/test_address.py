"""Addresses are told from paths; what holds a secret, or needs a library that is not here, is refused in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import UsageError
from models.sources import address
from models.sources.schemes import scheme_of
from models.sources.source import Source


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("s3://lab/trips/", "address"),
        ("https://example.org/trips.csv?day=1", "address"),
        ("file:///data/*.parquet", "address"),
        ("ftp://example.org/a.csv", "address"),
        ("./source.py:load", "own code"),
        ("pypi:penguins==1!a.csv", "package"),
        ("data/trips.csv", "file or folder"),
    ],
)
def test_what_an_address_is(text: str, name: str) -> None:
    assert scheme_of(text).name == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ftp://example.org/a.csv", "got the scheme ftp:, expected an address of s3:, https:"),
        ("s3://ada:lovelace@lab/a.csv", "s3://...@lab/a.csv holds a user or password"),
        (
            "https://ada@example.org/a.csv",
            "https://...@example.org holds a user or password: leave it out, and set its login",
        ),
        ("https://example.org/a.csv?sig=lovelace", r"a.csv\?sig=... holds a credential: write sig=\${NAME}"),
        ("https://example.org/*.csv", "a server of files cannot list them: name one file"),
        ("gs://lab/a.csv", "gs: needs gcsfs, which is not installed"),
        ("az://lab/a.csv", "az: needs adlfs, which is not installed"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_run(text: str, words: str, tmp_path: Path) -> None:
    if "@lab/" in words:
        words = words.replace("@lab/a.csv", "@lab")
    with pytest.raises(UsageError, match=words) as refused:
        address.local(Source(text, tmp_path))
    assert "lovelace" not in str(refused.value)


def test_a_variable_is_read_and_its_value_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "https://example.org/a.csv?token=${WAREHOUSE_TOKEN}"
    assert address.local(Source(text, tmp_path)) is None
    with pytest.raises(UsageError, match="the variable WAREHOUSE_TOKEN is not set"):
        address.expanded(text)
    monkeypatch.setenv("WAREHOUSE_TOKEN", "lovelace")
    whole = address.expanded(text)
    assert whole == "https://example.org/a.csv?token=lovelace"
    assert address.without_secrets(f"cannot read {whole}", text) == f"cannot read {text}"
    monkeypatch.setenv("WAREHOUSE_TOKEN", "ada b/c+d=")
    for spelt in ("ada b/c+d=", "ada%20b/c%2Bd=", "ada+b%2fc%2Bd%3D"):
        assert address.without_secrets(f"cannot read ?token={spelt}", text) == "cannot read ?token=${WAREHOUSE_TOKEN}"
