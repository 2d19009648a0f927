"""What the policy changes of the spec is what a person could have typed, and reads back as it was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.project_spec.blocks import Spec
from models.project_spec.reader import read_spec
from models.triggers.overrides import overrides

SETTINGS = {"train.lr": 0.003, "model.hidden": [64, 32]}
SPEC = "name: tiny\ndata: {source: d.csv, target: y, split: {by: time, column: at}}\nmodel: {net: mlp}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "project.yaml").write_text(SPEC)
    return tmp_path / "project.yaml"


def with_policy(path: Path, **retrain: Any) -> Spec:
    document = read_spec(path).model_dump()
    return Spec.model_validate({**document, "retrain": {**document["retrain"], **retrain}})


def test_by_default_nothing_is_changed(path: Path) -> None:
    assert overrides(read_spec(path), SETTINGS) == []


def test_they_read_back_as_they_were_meant(path: Path) -> None:
    spec = with_policy(path, start="champion", search="reuse", rows=5000)
    changed = read_spec(path, overrides(spec, SETTINGS))
    assert changed.train.start is not None
    assert changed.train.start.weights == "champion"
    assert (changed.search.trials, changed.search.settings) == (0, SETTINGS)
    assert changed.data.newest == 5000


def test_settings_that_nobody_knows_are_searched_for(path: Path) -> None:
    spec = with_policy(path, search="reuse")
    assert overrides(spec, None) == []
    assert overrides(spec, {}) == ["search.trials=0", "search.settings={}"]


def test_where_the_spec_itself_says_how_to_begin_that_stays(path: Path) -> None:
    document = with_policy(path, start="champion").model_dump()
    document["train"] |= {"batch": 256, "start": {"weights": "previous"}}
    assert overrides(Spec.model_validate(document), None) == []
