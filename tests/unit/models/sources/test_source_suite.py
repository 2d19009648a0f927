"""The suite of sources passes a good row, and finds what is wrong with another."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.project_spec.conformance import outcomes
from models.sources.source_suite import CLAIMS, source_claims

CODE = """\
import itertools
import pyarrow as pa

calls = itertools.count()


def read():
    return pa.table({"x": [1, 2], "y": ["no", "yes"]})


def drawn():
    return pa.table({"x": [next(calls)]})


def unread():
    return [1]


def newest():
    return 2


def clock():
    return next(calls)


def days():
    return ["mon", "tue"]


def text():
    return "two"


def raising():
    raise ValueError("no")


NAMES = ["x", "y"]
"""


def failed(folder: Path, row: str) -> list[str]:
    (folder / "own.py").write_text(f"{CODE}SOURCE = {row}\n")
    claims = source_claims("./own.py:SOURCE", folder, Path)
    return [outcome.claim for outcome in outcomes(claims) if outcome.error]


@pytest.mark.parametrize(
    ("row", "claims"),
    [
        ('{"read": read}', []),
        ('{"read": read, "identity": newest, "growth": newest, "header": NAMES}', []),
        ('{"read": read, "growth": days}', []),
        ('{"read": drawn}', ["the same rows are read again, in the same order"]),
        ('{"read": unread}', [*CLAIMS["read"]]),
        ('{"read": raising}', [*CLAIMS["read"]]),
        ('{"read": read, "identity": clock}', [*CLAIMS["identity"]]),
        ('{"read": read, "identity": raising}', [*CLAIMS["identity"]]),
        ('{"read": read, "growth": text}', ["the growth is a number of rows, or a list"]),
        ('{"read": read, "growth": clock}', ["a number is that of the rows that are read"]),
        ('{"read": read, "header": ["y", "x"]}', [*CLAIMS["header"]]),
    ],
)
def test_what_a_row_breaks_is_named(tmp_path: Path, row: str, claims: list[str]) -> None:
    assert failed(tmp_path, row) == claims


def test_a_row_that_has_not_the_form_is_the_only_outcome(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("SOURCE = {}\n")
    (outcome,) = outcomes(source_claims("./own.py:SOURCE", tmp_path, Path))
    assert "'read' is missing" in outcome.error
