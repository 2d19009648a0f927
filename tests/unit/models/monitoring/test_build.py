import numpy as np
import pyarrow as pa
import pytest

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.inputs.datetime.rows import fit_datetime
from models.monitoring.build import reference_of
from models.monitoring.contract import bounds_of
from models.monitoring.coverage import coverage_of
from models.monitoring.drift import feature_drift, score_drift
from models.monitoring.tally import tally
from models.project_spec.blocks import Data
from models.project_spec.monitor_and_retrain import Monitor
from tests.unit.models.monitoring.conftest import chance, logged, preparation, reference, rows, truth


def test_columns_scores_and_calibration_are_those_of_the_splits() -> None:
    made = reference()
    assert {column.name: column.bins.kind for column in made.columns} == {
        "wind": "numeric",
        "gust": "numeric",
        "colour": "categorical",
    }
    assert all(column.num_rows == 20_000 for column in made.columns)
    (score,) = made.scores
    assert (score.name, score.num_rows) == ("score", 5000)
    assert made.calibration is not None
    assert made.calibration.chances(np.array([0.3]))[0, 1] == pytest.approx(0.3, abs=0.08)


def test_a_regression_has_no_calibration() -> None:
    numbers = preparation().model_copy(update={"task": "regression", "target": TargetEncoding(name="late")})
    table = rows(500)
    made = reference_of(numbers, np.arange(500.0), np.arange(500.0), lambda split, names: [table.select(names)])
    assert made.calibration is None
    assert made.scores[0].bins.kind == "numeric"


def test_of_a_time_the_place_in_the_week_is_monitored_and_later_weeks_are_no_drift() -> None:
    hours = pa.table({"when": np.arange(0, 140 * 86_400.0, 3600.0)})
    part = fit_datetime("when", hours.column("when").to_numpy())
    timed = preparation().with_inputs("numeric", []).with_inputs("categorical", []).with_inputs("datetime", [part])
    truths, chances = np.arange(100) % 2, np.full(100, 0.5)
    made = reference_of(timed, truths, chances, lambda split, names: [hours.select(names)])
    later = pa.table({"input.when": hours.column("when").to_numpy() + 70 * 86_400})
    counted = tally(later, made.model_copy(update={"scores": []}))
    assert counted.counts["input.when"].tolist() == made.columns[0].counts.tolist()
    assert bounds_of(made.columns, Data(source="a.csv", target="y")) == {}


def test_many_classes_are_watched_by_the_likeliest_and_its_chance() -> None:
    several = preparation().model_copy(
        update={"task": "multiclass", "target": TargetEncoding(name="k", classes=["a", "b", "c"], dtype="string")}
    )
    stated = np.random.default_rng(0).dirichlet([1, 1, 1], 500)
    made = reference_of(several, stated.argmax(axis=1), stated, lambda split, names: [rows(500).select(names)])
    assert [column.name for column in made.scores] == ["confidence", "class"]
    assert made.scores[1].counts[:3].tolist() == np.bincount(stated.argmax(axis=1), minlength=3).tolist()


@pytest.mark.parametrize("kind", ["image", "series", "text"])
def test_what_is_no_table_has_scores_alone(kind: str) -> None:
    other = preparation().model_copy(update={"kind": kind})
    table = rows(300)
    made = reference_of(other, truth(table), chance(table.column("wind").to_numpy()), lambda split, names: 1 / 0)
    assert made.columns == []
    assert len(made.scores) == 1


def test_rows_of_the_test_split_tell_what_new_categories_are_usual() -> None:
    table = rows(100)
    strange = table.set_column(2, "colour", [["violet"] * 25 + ["red"] * 75])
    given = {"train": table, "test": strange}
    made = reference_of(
        preparation(), truth(table), np.full(100, 0.5), lambda split, names: [given[split].select(names)]
    )
    assert made.columns[2].outside == 0.25


def test_rows_of_a_sampling_are_compared_by_what_they_stand_for() -> None:
    """One in five of the calm rows was taken, and stands for five; served rows are not chosen."""
    splits, weights = {}, {}
    for seed, (split, num) in enumerate({"train": 40_000, "test": 10_000}.items()):
        table, random = rows(num, seed=seed, nulls=0.1), np.random.default_rng(seed)
        is_calm = np.nan_to_num(table.column("gust").to_numpy()) < 0.5
        taken = ~is_calm | (random.random(num) < 0.2)
        splits[split], weights[split] = table.filter(pa.array(taken)), np.where(is_calm, 5.0, 1.0)[taken]
    stated = chance(np.nan_to_num(splits["test"].column("wind").to_numpy()))
    one = reference_of(
        preparation(), truth(splits["test"]), stated, lambda split, names: [splits[split].select(names)], None, weights
    )
    served = logged(rows(2000, seed=9, nulls=0.1))
    drifted = {}
    for meaning in ("importance", "sampling"):
        monitor = Monitor(weights=meaning)
        compared = one.as_monitored(monitor, ["colour"])
        assert [column.name for column in compared.columns] == ["wind", "gust"], "colour is never logged"
        counted = tally(served, compared)
        drifts = [*feature_drift(counted, compared.columns, monitor), *score_drift(counted, compared.scores, monitor)]
        drifted[meaning] = {drift.name for drift in drifts if drift.level != "none"}
        assert all(column.nulls == pytest.approx(0.1, abs=0.02) for column in compared.columns if column.name == "wind")
    assert drifted == {"importance": {"wind", "gust", "score"}, "sampling": set()}
    worth = one.as_monitored(Monitor(weights="sampling"), []).columns[0].num_rows
    assert worth == pytest.approx(weights["train"].sum() ** 2 / (weights["train"] ** 2).sum(), abs=1)


def test_a_coverage_counts_rows_by_their_weight() -> None:
    target, inside = np.arange(100.0) % 2, np.tile([-1.0, 0.5], (100, 1))
    levels = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]
    weighted = coverage_of(target[:, None].repeat(2, axis=1), inside, levels, weights=np.where(target == 0, 3.0, 1.0))
    assert weighted is not None
    assert (weighted.num_rows, weighted.num_covered) == (80, 60)
