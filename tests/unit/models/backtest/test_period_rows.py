"""What is prepared at a moment holds nothing of later: proved with marked rows that change when the future does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.period_rows import prepare_known, rows_predicted, write_period
from models.backtest.periods import RowRange
from models.data.feeds import feeds, targets
from models.data.preparation import Preparation
from models.errors import DataError
from models.project_spec.blocks import Spec

KNOWN = 240
MARK = "FUTURE"


def spec_of(**more: object) -> Spec:
    data = {"source": "x.csv", "target": "y", "split": {"by": "time", "column": "t"}, **more}
    return Spec.model_validate({"name": "t", "data": data, "judge": {"slices": ["city"]} if "kind" not in more else {}})


def rows(mark: bool) -> pa.Table:
    """Three hundred rows; with `mark`, those after the 240th are unlike any before: numbers, categories, classes."""
    random = np.random.default_rng(0)
    later = mark & (np.arange(300) >= KNOWN)
    number = np.where(later, 1e9, random.normal(0, 1, 300))
    city = np.where(later, MARK, random.choice(["Rome", "Oslo"], 300))
    return pa.table({"t": np.arange(300), "x": number, "city": city, "y": np.where(number > 0, "yes", "no")})


def test_no_statistic_knows_a_row_of_later(tmp_path: Path):
    for name, mark in (("marked", True), ("plain", False)):
        prepare_known(rows(mark), RowRange(0, KNOWN), spec_of(), tmp_path, tmp_path / name)
    told = (tmp_path / "marked" / "preparation.json").read_text()
    assert told == (tmp_path / "plain" / "preparation.json").read_text()
    assert MARK not in told
    marked, plain = (tmp_path / name / "rows.parquet" for name in ("marked", "plain"))
    assert marked.read_bytes() == plain.read_bytes()


def test_the_known_rows_are_divided_as_the_spec_says_the_newest_judge(tmp_path: Path):
    preparation = prepare_known(rows(mark=False), RowRange(40, KNOWN), spec_of(), tmp_path, tmp_path / "p")
    assert preparation.rows == {"train": 140, "validation": 30, "test": 30}
    assert len(targets(tmp_path / "p", "test")) == 30


def test_a_period_is_seen_as_the_model_sees_it(tmp_path: Path):
    table = rows(mark=True)
    preparation = prepare_known(table, RowRange(0, 200), spec_of(), tmp_path, tmp_path / "p")
    left_out = write_period(table, RowRange(200, 260), spec_of().data, tmp_path, preparation, tmp_path / "period")
    assert left_out == 0
    feed = next(feeds(tmp_path / "period", "test", preparation))
    assert feed["x"].tolist() == table["x"].to_pylist()[200:260]
    assert feed["city"].tolist() == table["city"].to_pylist()[200:260]
    assert rows_predicted(tmp_path / "period").tolist() == list(range(200, 260))
    assert Preparation.load(tmp_path / "period") == preparation


def test_rows_of_a_class_that_the_model_has_never_seen_are_left_out_and_counted(tmp_path: Path):
    table = rows(mark=False)
    preparation = prepare_known(table, RowRange(0, 200), spec_of(), tmp_path, tmp_path / "p")
    labels = table["y"].to_pylist()
    labels[210:213] = ["perhaps"] * 3
    table = table.set_column(3, "y", pa.array(labels))
    assert write_period(table, RowRange(200, 260), spec_of().data, tmp_path, preparation, tmp_path / "period") == 3
    assert len(targets(tmp_path / "period", "test")) == 57
    with pytest.raises(DataError, match="no row of this period can be predicted"):
        write_period(table, RowRange(210, 213), spec_of().data, tmp_path, preparation, tmp_path / "none")


def test_a_series_has_its_windows_reach_back_before_the_period(tmp_path: Path):
    steps = np.arange(200)
    table = pa.table({"t": steps, "y": np.sin(steps / 9.0), "heat": np.cos(steps / 7.0)})
    spec = spec_of(kind="series", window={"length": 5, "horizon": 2})
    preparation = prepare_known(table, RowRange(0, 150), spec, tmp_path, tmp_path / "p")
    assert write_period(table, RowRange(150, 180), spec.data, tmp_path, preparation, tmp_path / "period") == 0
    series = next(feeds(tmp_path / "period", "test", preparation))["series"]
    assert series.shape == (30, 5, 2)
    assert series[0, :, 0].tolist() == table["y"].to_pylist()[144:149]
    assert targets(tmp_path / "period", "test").tolist() == table["y"].to_pylist()[150:180]


def test_each_horizon_of_a_series_has_its_true_value(tmp_path: Path):
    """The first examples of a period predict steps of the period before too."""
    values = np.sin(np.arange(200) / 9.0)
    spec = spec_of(kind="series", window={"length": 5, "horizon": [1, 4]})
    table = pa.table({"t": np.arange(200), "y": values})
    preparation = prepare_known(table, RowRange(0, 150), spec, tmp_path, tmp_path / "p")
    assert write_period(table, RowRange(150, 180), spec.data, tmp_path, preparation, tmp_path / "period") == 0
    assert next(feeds(tmp_path / "period", "test", preparation))["series"][0, -1] == values[146]
    assert np.array_equal(targets(tmp_path / "period", "test"), np.stack([values[147:177], values[150:180]], axis=1))


def test_features_made_by_the_users_code_see_no_later_row(tmp_path: Path):
    (tmp_path / "own.py").write_text("def make(frame):\n    return frame.assign(most=frame.x)\n")
    spec = spec_of(features={"make": "./own.py:make"})
    table = rows(mark=True)
    preparation = prepare_known(table, RowRange(0, 200), spec, tmp_path, tmp_path / "p")
    (tmp_path / "own.py").write_text("def make(frame):\n    return frame.assign(most=frame.x.max())\n")
    write_period(table, RowRange(200, KNOWN), spec.data, tmp_path, preparation, tmp_path / "period")
    assert next(feeds(tmp_path / "period", "test", preparation))["most"].max() < 10
    write_period(table, RowRange(200, KNOWN + 1), spec.data, tmp_path, preparation, tmp_path / "period")
    assert next(feeds(tmp_path / "period", "test", preparation))["most"].max() == 1e9


def test_a_column_that_is_gone_is_named(tmp_path: Path):
    table = rows(mark=False)
    preparation = prepare_known(table, RowRange(0, 200), spec_of(), tmp_path, tmp_path / "p")
    with pytest.raises(DataError, match="the model takes a column that these rows lack: no column 'x'"):
        write_period(
            table.drop_columns(["x"]), RowRange(200, 260), spec_of().data, tmp_path, preparation, tmp_path / "q"
        )
