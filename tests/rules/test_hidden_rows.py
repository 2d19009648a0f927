"""Rule: `data.show_rows: false` hides rows, and values of fewer than ten of them, wherever something is said of data.

Each stage says a value of a single row where it may, and none where it may not.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.data.feeds import targets
from models.data.prepare import prepare
from models.export.background import write_background
from models.export.signature import without_rows
from models.judge.evidence import Evidence
from models.judge.slices import without_rare
from models.judge.worst_examples import worst_examples
from models.judge.worst_rows import WorstExamples
from models.project_spec.blocks import Spec
from models.readable import as_shown
from models.serving.playground_form import PlaygroundField, PlaygroundForm
from models.sources.read import write_table
from models.validation.alike_classes import alike_classes
from models.validation.data_profile import FEWEST_ALIKE, without_values
from models.validation.mixed_columns import odd_cells
from models.validation.profiling import profile_of
from models.validation.rounded_numbers import rounded_numbers
from tests.running import Loopline

SECRET, ACCOUNT = "Zaphod", 2**53 + 1
NUM = 200


def columns() -> dict[str, Any]:
    rows = np.arange(NUM)
    return {
        "mixed": [SECRET if row == 7 else str(row % 50) for row in rows],
        "town": [SECRET if row == 7 else "ab"[row % 2] for row in rows],
        "account": ACCOUNT - 1 + rows,
        "age": [9142 if row == 7 else 20 + row % 2 for row in rows],
        "y": [SECRET if row == 7 else SECRET.upper() if row % 2 else "no" for row in rows],
    }


class Stage:
    """A table, and what its spec says of showing rows."""

    def __init__(self, place: Path, *, shows_rows: bool) -> None:
        data = {
            "source": "x.csv",
            "target": "y",
            "show_rows": shows_rows,
            "features": {"kinds": {"mixed": "categorical"}},
        }
        self.place, self.shows_rows = place, shows_rows
        self.spec = Spec.model_validate({"name": "t", "data": data})
        self.table = pa.table(columns())


def _cells(stage: Stage) -> Any:
    without_kinds = stage.spec.data.model_copy(update={"features": type(stage.spec.data.features)()})
    return odd_cells(stage.table, without_kinds)


def _page_of_data(stage: Stage) -> Any:
    write_table(stage.table, stage.place / "raw.parquet")
    prepare(stage.place / "raw.parquet", stage.spec, stage.place, stage.place / "prepared")
    profile = profile_of(stage.place / "raw.parquet", stage.place / "prepared", stage.spec.data)
    return profile.model_dump(exclude={"ids"})


def _checks(stage: Stage) -> Any:
    """A column's greatest value, the champion's categories, and what the engine says where it cannot convert."""
    check: dict[str, Any] = {"origin": "spec", "observed": None, "examples": [], "error": None, "arguments": {}}
    results = [
        {**check, "expectation": "column_max_to_be_between", "observed": ACCOUNT},
        {**check, "expectation": "column_kl_divergence_to_be_less_than", "origin": "champion",
         "arguments": {"column": "town", "partition_object": {"values": ["a", SECRET]}}},
        {**check, "expectation": "column_mean_to_be_between", "error": f"cannot be evaluated: {SECRET} is no number"},
    ]  # fmt: skip
    return as_shown(results, stage.spec.data.show_rows, without_values)


def _slices(stage: Stage) -> Any:
    towns = {"town": np.array(stage.table.column("town").to_pylist(), object)}
    shown = as_shown(towns, stage.spec.data.show_rows, lambda slices: without_rare(slices, FEWEST_ALIKE))
    return shown["town"].tolist()


def _example(stage: Stage) -> Any:
    tensors = [("town", "string", ["batch"]), ("age", "double", ["batch"]), ("image", "uint8", ["batch", 2, 3, 1])]
    inputs = [{"name": name, "dtype": dtype, "shape": shape} for name, dtype, shape in tensors]
    exported = {"inputs": inputs, "input_example": {"town": [SECRET]}, "samples": [{"prompt": SECRET}]}
    plain = exported if stage.shows_rows else without_rows(exported)
    assert stage.shows_rows or {name: np.shape(values) for name, values in plain["input_example"].items()} == {
        "town": (1,), "age": (1,), "image": (1, 2, 3, 1)
    }  # fmt: skip
    return plain


def _worst(stage: Stage) -> Any:
    everywhere = stage.table.set_column(1, "town", pa.array([f"{SECRET} {row % 50}" for row in range(NUM)]))
    write_table(everywhere, stage.place / "raw.parquet")
    preparation = prepare(stage.place / "raw.parquet", stage.spec, stage.place, stage.place / "prepared")
    true = targets(stage.place / "prepared", "test")
    evidence = Evidence("multiclass", true, np.full((len(true), 3), 1 / 3))
    worst = worst_examples(stage.place / "prepared", preparation, evidence)
    return as_shown(worst, stage.spec.data.show_rows, WorstExamples.without_rows).model_dump(exclude_defaults=True)


def _background(stage: Stage) -> Any:
    """The background of explanations: a text that one row has, and a number that one row has."""
    towns = stage.table.set_column(1, "town", pa.array([SECRET if row == 0 else "ab"[row % 2] for row in range(NUM)]))
    table = towns.set_column(3, "age", pa.array([9142.0 if row == 0 else 20.0 + row % 2 for row in range(NUM)]))
    write_table(table.drop_columns(["mixed", "account"]), stage.place / "raw.parquet")
    data = stage.spec.data.model_copy(update={"features": type(stage.spec.data.features)()})
    spec = stage.spec.model_copy(update={"data": data})
    preparation = prepare(stage.place / "raw.parquet", spec, stage.place, stage.place / "prepared")
    path = write_background(stage.place, stage.place / "prepared", preparation, shows_rows=stage.shows_rows)
    return path and json.loads(path.read_text())


def _try(stage: Stage) -> Any:
    form = PlaygroundForm(fields=[PlaygroundField(name="town", control="choice", value=SECRET, levels=["a", SECRET])])
    return (form if stage.shows_rows else form.without_rows()).model_dump()


SAYS: dict[str, Callable[[Stage], Any]] = {
    "a note of odd cells": _cells,
    "a note of large numbers": lambda stage: rounded_numbers(stage.table, stage.spec.data),
    "a note of classes alike": lambda stage: alike_classes(stage.table, stage.spec.data),
    "the page of the data": _page_of_data,
    "the report of the checks": _checks,
    "the slices of a verdict": _slices,
    "the example of a version": _example,
    "the worst rows": _worst,
    "the form of a try": _try,
    "the background of explanations": _background,
}
"""What says something of data; what is new belongs here."""


@pytest.mark.parametrize("says", SAYS)
def test_every_stage_that_says_something_of_data(says: str, tmp_path: Path) -> None:
    for shows_rows in (True, False):
        (place := tmp_path / str(shows_rows)).mkdir()
        text = json.dumps(SAYS[says](Stage(place, shows_rows=shows_rows)), default=str)
        told = [value for value in (SECRET, str(ACCOUNT), "9142") if value in text]
        assert bool(told) == shows_rows, told


def test_a_stage_chooses_by_as_shown_alone() -> None:
    """What a spec says of rows is passed on, to `as_shown` in the end; no stage branches on it by itself."""
    root = Path(__file__).parents[2]
    branches = set()
    for path in (path for room in ("models", "tasks", "flows") for path in (root / room).rglob("*.py")):
        if "show_rows" not in (text := path.read_text()):
            continue
        tree = ast.parse(text)
        passed = [call.args + [word.value for word in call.keywords] for call in ast.walk(tree)
                  if isinstance(call, ast.Call)]  # fmt: skip
        plain = {id(node) for arguments in passed for node in arguments}
        plain |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return)}
        reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "show_rows"]
        branches |= {path.relative_to(root).as_posix() for node in reads if id(node) not in plain}
    assert branches == BRANCHES.keys()


BRANCHES = {
    "models/validation/profiling.py": "reads no sample; `as_shown` takes what else the profile says of rows",
    "tasks/operations/monitor.py": "counts windows anew after a change of the key",
    "tasks/steps/profile.py": "counts the data anew after a change of the key",
}
"""Modules that ask by themselves, and why."""
SPEC = """
data:
  source: data.csv
  target: y
  id: code
  show_rows: false
  expectations:
    - {expect: column_values_to_be_between, arguments: {column: age, max_value: 1000}, severity: warn}
model: {net: linear}
search: {trials: 0}
judge: {slices: [town]}
"""
OF_THE_MODEL = {
    "preparation.json", "reference.json", "monitoring-reference.json", "model.onnx", "1.json", "rows.parquet",
    "raw.parquet",
}  # fmt: skip
"""The data, and what the model needs: it knows categories by their names, and monitoring knows their shares."""


@pytest.mark.wide
def test_no_stage_of_a_loop_writes_a_row_past_it(empty_store: Path, empty_prefect: Path, tmp_path: Path) -> None:
    """Also a stage that is not listed above: cells of some rows are words that no written file may have."""
    loopline = Loopline(tmp_path / "workspace")
    loopline.begin(empty_store, empty_prefect)
    rows = []
    for row in range(300):
        is_rare, label = row % 29 == 7, "yes" if (row * 7919) % 10 < 3 + 4 * (row % 2) else "no"
        town, age = (f"{SECRET}{row}", 91_420_000_000_000 + row) if is_rare else ("ab"[row % 2], 20 + row % 7)
        rows.append(f"{SECRET}{row},{town},{SECRET} {row} wrote,{age},{label}")
    loopline.project("hidden", SPEC, {"data.csv": "\n".join(["code,town,note,age,y", *rows, ""])})
    ended = loopline("run", "hidden").ok()
    told = re.compile(rb"Zaphod|914200000000\d\d")
    assert not told.search((ended.out + ended.err).encode())
    files = [path for path in (loopline.home / ".loopline").rglob("*") if path.is_file()]
    assert len(files) > 30
    assert {path.name for path in files if told.search(path.read_bytes())} <= OF_THE_MODEL
