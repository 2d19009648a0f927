"""Whole numbers of a spec have limits, so that a slip of the finger neither hangs nor fails far from its line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.errors import UsageError
from models.inputs.records import column_kinds
from models.project_spec.blocks import Data
from models.project_spec.reader import json_schema, read_spec

SCHEMA = json_schema(column_kinds())
TEXTS = ("data.window.frequency", "train.start.weights", "goal.positive")
"""They are texts that YAML may read as numbers."""


def whole_numbers(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the schema of each whole number."""
    if "$ref" in node:
        yield from whole_numbers(SCHEMA["$defs"][node["$ref"].rpartition("/")[2]], path)
    if node.get("type") == "integer":
        yield path, node
    for inner in node.get("anyOf", []):
        yield from whole_numbers(inner, path)
    for name, inner in node.get("properties", {}).items():
        yield from whole_numbers(inner, f"{path}.{name}" if path else name)


KEYS = sorted({path for path, _ in whole_numbers(SCHEMA)} - set(TEXTS))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project") / "project.yaml"
    path.write_text("name: tiny\ndata: {source: a.csv, target: y}\n")
    return path


def test_every_whole_number_of_the_schema_has_a_maximum() -> None:
    assert len(KEYS) > 45
    assert [path for path, node in whole_numbers(SCHEMA) if path not in TEXTS and "maximum" not in node] == []


@given(st.sampled_from(KEYS), st.integers(2**63, 2**70) | st.integers(10**30, 10**300), st.sampled_from([1, -1]))
def test_a_huge_whole_number_is_refused_with_its_key(project: Path, key: str, size: int, sign: int) -> None:
    value = sign * size - (sign < 0)
    with pytest.raises(UsageError, match=f"command line: {key.rpartition('.horizon')[0] or key}") as raised:
        read_spec(project, [f"{key}={value}"])
    assert any(word in str(raised.value) for word in ("got", "expected"))


@pytest.mark.parametrize("written", ["1" * 5000, "0x" + "f" * 5000, "-" + "9" * 5000])
@pytest.mark.parametrize("line", ["train: {epochs: NUMBER}", "model: {arguments: {hidden: NUMBER}}"])
def test_a_number_of_more_digits_than_python_writes_is_refused(tmp_path: Path, line: str, written: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_text("name: tiny\ndata: {source: a.csv, target: y}\n" + line.replace("NUMBER", written))
    with pytest.raises(UsageError, match=r"digits|bits"):
        read_spec(path)
    path.write_text("name: tiny\ndata: {source: a.csv, target: y}\n")
    with pytest.raises(UsageError, match=r"expected a YAML value|bits"):
        read_spec(path, [f"train.epochs={written}"])


@pytest.mark.parametrize("form", ["%d.%m", "%H:%M", "dd.mm.yyyy", "%Q %d", ""])
def test_a_form_without_a_day_of_a_year_is_refused(form: str) -> None:
    with pytest.raises(ValidationError, match=r"sold: got .*, expected a form of Python's strptime with year, month"):
        Data(source="a.csv", target="y", dates={"sold": form})


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%y%m%d", "%b %d, %Y %I:%M %p", "%Y-%j"])
def test_a_form_with_a_day_of_a_year_is_one(form: str) -> None:
    assert Data(source="a.csv", target="y", dates={"sold": form}).dates == {"sold": form}
