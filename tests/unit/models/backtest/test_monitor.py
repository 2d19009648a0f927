"""A replayed champion is watched by the live checks, with no label and no row that had not come yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.backtest.monitor import PastPredictions, assess_window, inputs_of, signals_of
from models.backtest.period_rows import prepare_known
from models.backtest.periods import RowRange
from models.data.preparation import Preparation
from models.judge.verdict import Estimate
from models.metrics.metrics import METRICS
from models.monitoring.assess import AssessmentRules
from models.monitoring.build import reference_of
from models.monitoring.contract import bounds_of
from models.project_spec.blocks import Spec

SPEC = Spec.model_validate(
    {
        "name": "t",
        "data": {"source": "x.csv", "target": "y", "split": {"by": "time", "column": "t"}},
        "monitor": {"window": 100, "min_labels": 50, "alarms": 1, "of": 1},
    }
)
KNOWN = 600


def rows(jump: bool = False, mark: bool = False) -> pa.Table:
    """A thousand rows; from the 700th on what was yes is no (`jump`), or x is a thousand times as large (`mark`)."""
    random = np.random.default_rng(0)
    x, later = random.normal(size=1000), np.arange(1000) >= 700
    late = (x + random.normal(0, 0.3, 1000) > 0) ^ (later & jump)
    city = random.choice(["Rome", "Oslo"], 1000)
    shown = np.where(later & mark, 1000 * x, x)
    return pa.table({"t": np.arange(1000), "x": shown, "city": city, "y": np.where(late, "yes", "no")})


@pytest.fixture
def preparation(tmp_path: Path) -> Preparation:
    return prepare_known(rows(), RowRange(0, KNOWN), SPEC, tmp_path, tmp_path / "prepared")


@pytest.fixture
def watched(preparation: Preparation) -> AssessmentRules:
    known = rows().slice(0, KNOWN)
    target, score = labels(known), scores(known)
    reference = reference_of(preparation, target, score, lambda _, names: [known.select(names)])
    bounds = bounds_of(reference.columns, SPEC.data)
    promised = Estimate(value=0.97, low=0.95, high=0.99)
    return AssessmentRules("3", SPEC.monitor, METRICS["roc_auc"], reference, promised, bounds)


def labels(table: pa.Table) -> np.ndarray:
    return np.array([value == "yes" for value in table["y"].to_pylist()], dtype=np.int64)


def scores(table: pa.Table) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(table["x"].to_numpy(), -9, 9)))


def served(table: pa.Table) -> PastPredictions:
    row = np.arange(KNOWN, 1000)
    return PastPredictions.joined(
        [PastPredictions(part, labels(table)[part], scores(table)[part]) for part in np.array_split(row, 3)]
    )


def windows(table: pa.Table, watched: AssessmentRules, preparation: Preparation, labelled: int, base: Path):
    found = []
    given = served(table)
    for part in given.windows(SPEC.monitor.window):
        chosen = given.row[part]
        inputs = inputs_of(table, chosen, SPEC.data, preparation.columns, preparation.kind, int(chosen[-1]) + 1, base)
        found.append(assess_window(given, part, labelled, watched, inputs, np.arange(1000.0), found))
    return found


def test_whole_windows_follow_each_other_over_the_periods(
    tmp_path: Path, watched: AssessmentRules, preparation: Preparation
):
    found = windows(rows(), watched, preparation, 1000, tmp_path)
    assert [(window.id, window.begin, window.end) for window in found] == [
        (f"3/{first}", 600.0 + first, 699.0 + first) for first in (0, 100, 200, 300)
    ]
    assert all(window.whole and window.num_labels == 100 for window in found)


def test_calm_predictions_ask_for_nothing(tmp_path: Path, watched: AssessmentRules, preparation: Preparation):
    found = windows(rows(), watched, preparation, 1000, tmp_path)
    assert [signal for signal in signals_of("t", 5.0, found, watched) if signal.kind != "drift"] == []


def test_a_jump_of_the_concept_is_decay_at_the_moment_of_the_look(
    tmp_path: Path, watched: AssessmentRules, preparation: Preparation
):
    found = windows(rows(jump=True), watched, preparation, 1000, tmp_path)
    assert [window.decayed for window in found] == [False, True, True, True]
    (signal,) = [signal for signal in signals_of("t", 5.0, found, watched) if signal.kind == "decay"]
    assert signal.at == 5.0
    assert "promoted with 0.97" in signal.reason


def test_a_label_that_has_not_come_says_nothing(tmp_path: Path, watched: AssessmentRules, preparation: Preparation):
    found = windows(rows(jump=True), watched, preparation, 740, tmp_path)
    assert [window.num_labels for window in found] == [100, 40, 0, 0]
    assert [window.realised is None for window in found] == [False, True, True, True]
    assert not [signal for signal in signals_of("t", 5.0, found, watched) if signal.kind == "decay"]


def test_rows_out_of_range_are_broken_data(tmp_path: Path, watched: AssessmentRules, preparation: Preparation):
    found = windows(rows(mark=True), watched, preparation, 1000, tmp_path)
    assert [bool(window.breaches) for window in found] == [False, True, True, True]
    assert signals_of("t", 5.0, found, watched)[0].kind == "broken_data"


def test_a_window_is_the_same_whatever_comes_later(tmp_path: Path, watched: AssessmentRules, preparation: Preparation):
    calm, marked = rows(), rows(jump=True, mark=True)
    early = [windows(table, watched, preparation, 700, tmp_path)[0] for table in (calm, marked)]
    assert early[0] == early[1]


def test_features_made_by_the_users_code_are_made_of_what_had_come(tmp_path: Path):
    (tmp_path / "own.py").write_text("def make(frame):\n    return frame.assign(most=frame.x)\n")
    data = SPEC.data.model_copy(update={"features": SPEC.data.features.model_copy(update={"make": "./own.py:make"})})
    spec = SPEC.model_copy(update={"data": data})
    preparation = prepare_known(rows(), RowRange(0, KNOWN), spec, tmp_path, tmp_path / "made")
    (tmp_path / "own.py").write_text("def make(frame):\n    return frame.assign(most=frame.x.max())\n")
    table = inputs_of(rows(mark=True), np.arange(600, 650), data, preparation.columns, preparation.kind, 700, tmp_path)
    assert table is not None
    assert max(table["input.most"].to_pylist()) < 10


def test_an_image_has_no_columns_to_count(preparation: Preparation):
    image = preparation.model_copy(update={"kind": "image"})
    assert inputs_of(rows(), np.arange(5), SPEC.data, image.columns, image.kind, 10, Path()) is None
