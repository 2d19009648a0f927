"""The trivial baseline and the clusters that a verdict takes of a prepared folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.data.feeds import targets
from models.data.prepare import prepare
from models.judge.held_out import baseline_of, clusters_of, is_known, known_rows
from models.project_spec.blocks import Spec


def prepared(table: pa.Table, place: Path, **data: object):
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y", **data}})
    pq.write_table(table, place / "raw.parquet")
    return spec, prepare(place / "raw.parquet", spec, place, place / "prepared")


def test_a_table_has_the_middle_of_its_training_targets(tmp_path: Path):
    table = pa.table({"x": np.arange(200.0), "y": np.random.default_rng(0).normal(5, 1, 200)})
    spec, preparation = prepared(table, tmp_path)
    folder = tmp_path / "prepared"
    found = baseline_of(folder, preparation, 7, "mae")
    assert found.prediction.tolist() == [np.median(targets(folder, "train"))] * 7
    assert clusters_of(folder, preparation, spec.data.split, 7) is None


def test_a_series_has_its_last_known_value_and_stretches_of_neighbours(tmp_path: Path):
    steps = np.arange(200)
    table = pa.table({"t": steps, "y": np.sin(steps / 9.0)})
    spec, preparation = prepared(
        table, tmp_path, kind="series", window={"length": 5, "horizon": 2}, split={"by": "time", "column": "t"}
    )
    folder = tmp_path / "prepared"
    count = len(targets(folder, "test"))
    assert baseline_of(folder, preparation, count, "mae").prediction[0] == np.sin((200 - count - 2) / 9.0)
    clusters = clusters_of(folder, preparation, spec.data.split, count)
    assert clusters is not None
    assert np.bincount(clusters)[0] == round(count ** (1 / 3))


def test_a_gap_in_a_series_has_the_value_known_before_it(tmp_path: Path):
    values = [None if step == 190 else float(step) for step in range(200)]
    _, preparation = prepared(
        pa.table({"t": np.arange(200), "y": values}),
        tmp_path,
        kind="series",
        window={"length": 5},
        split={"by": "time", "column": "t"},
    )
    folder = tmp_path / "prepared"
    test = targets(folder, "test")
    forecast = baseline_of(folder, preparation, len(test), "mae").prediction
    assert (test - forecast).tolist() == [2.0 if value == 191 else 1.0 for value in test]


def test_groups_hang_together(tmp_path: Path):
    random = np.random.default_rng(0)
    who = random.integers(0, 60, 400)
    table = pa.table({"x": random.normal(size=400), "who": who, "y": random.normal(size=400)})
    spec, preparation = prepared(table, tmp_path, split={"by": "group", "column": "who"})
    folder = tmp_path / "prepared"
    count = len(targets(folder, "test"))
    clusters = clusters_of(folder, preparation, spec.data.split, count)
    assert clusters is not None
    assert len(clusters) == count
    assert 1 < clusters.max() + 1 < 60


def test_rows_that_another_model_knows_are_found_again_in_whatever_order_they_come(tmp_path: Path):
    random = np.random.default_rng(0)
    table = pa.table({"x": random.normal(size=300), "y": random.choice(["a", "b"], 300)})
    _, preparation = prepared(table, tmp_path)
    known = known_rows(tmp_path / "prepared", preparation)
    assert len(known) == preparation.rows["train"] + preparation.rows["validation"]
    assert not is_known(tmp_path / "prepared", known).any()
    prepared(table.take(random.permutation(300)), tmp_path)
    assert not is_known(tmp_path / "prepared", known).any()
    prepared(table, tmp_path, split={"seed": 1})
    assert 0.5 < is_known(tmp_path / "prepared", known).mean() < 1
