import numpy as np
import pyarrow as pa
import pytest

from models.data.target_encoding import TargetEncoding
from models.inputs.datetime.rows import fit_datetime
from models.monitoring.build import reference_of
from models.monitoring.contract import bounds_of
from models.monitoring.tally import tally
from models.project_spec.blocks import Data
from tests.unit.models.monitoring.conftest import chance, preparation, reference, rows, truth


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
