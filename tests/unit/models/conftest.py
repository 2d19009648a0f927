"""Specs and tables, prepared or not, and a past whose concept jumps in May."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.project_spec.blocks import Spec
from models.sources.read import write_table
from tests.synthetic_past import Past, jumping_past

MakeSpec = Callable[..., Spec]
Prepare = Callable[[pa.Table, Spec], tuple[Path, Preparation]]


@pytest.fixture
def make_spec() -> MakeSpec:
    def make(judge: dict[str, Any] | None = None, **data: Any) -> Spec:
        block = {"source": "x.csv", "target": "y", **data}
        return Spec.model_validate({"name": "t", "data": block, "judge": judge or {}})

    return make


@pytest.fixture
def series_spec(make_spec: MakeSpec) -> MakeSpec:
    def make(**window: Any) -> Spec:
        return make_spec(
            kind="series", window={"length": 5, "horizon": 2, **window}, split={"by": "time", "column": "t"}
        )

    return make


@pytest.fixture
def rows() -> pa.Table:
    """Two hundred rows of numbers with gaps, text with gaps, a flag and a binary target."""
    random = np.random.default_rng(0)
    number = random.normal(10, 3, 200)
    number[::17] = np.nan
    return pa.table(
        {
            "number": number,
            "count": random.integers(0, 50, 200),
            "city": random.choice(["Rome", "Oslo", "Bern", ""], 200),
            "flag": random.random(200) < 0.5,
            "when": np.arange(200),
            "y": random.choice(["no", "yes"], 200),
        }
    )


@pytest.fixture
def series() -> pa.Table:
    steps = np.arange(120)
    return pa.table({"t": steps, "y": np.sin(steps / 5), "heat": np.cos(steps / 7)})


@pytest.fixture
def run_prepare(tmp_path: Path) -> Prepare:
    """Prepares a table; gives back the folder and the preparation. The raw table is beside the folder."""

    def run(table: pa.Table, spec: Spec) -> tuple[Path, Preparation]:
        write_table(table, tmp_path / "raw.parquet")
        out = tmp_path / "prepared"
        return out, prepare(tmp_path / "raw.parquet", spec, tmp_path, out)

    return run


@pytest.fixture
def past() -> Past:
    return jumping_past()
