"""Permutation importance: of the columns that a model reads, within its ceilings."""

import numpy as np
import pytest

from models.judge import importance
from models.judge.importance import LEAST_ROWS, MOST_COLUMNS, SHUFFLES, columns_of, measure_importances


def rows_of(num, num_columns):
    rng = np.random.default_rng(0)
    feed = {f"x{place}": rng.normal(size=num) for place in range(num_columns)}
    return feed, {name: (name, ...) for name in feed}


def predicted_by(*weights):
    """A model that is a weighted sum of the first columns."""

    def predict(feeds):
        return np.concatenate([sum(w * feed[f"x{place}"] for place, w in enumerate(weights)) for feed in feeds])

    return predict


def mean_error_from(target):
    return lambda prediction: float(np.abs(prediction - target[: len(prediction)]).mean())


def test_columns_count_by_what_the_model_makes_of_them():
    feed, places = rows_of(400, 12)
    target = 2 * feed["x0"] + feed["x1"]
    measured = measure_importances(predicted_by(2, 1), feed, places, mean_error_from(target))
    assert [row.column for row in measured.columns[:2]] == ["x0", "x1"]
    assert 1.8 < measured.columns[0].loss / measured.columns[1].loss < 2.2
    assert all(row.low < row.loss < row.high for row in measured.columns[:2])
    assert {row.loss for row in measured.columns[2:]} == {0.0}, "columns that the model does not read"
    assert (measured.num_columns, measured.num_rows, measured.num_shuffles) == (12, 400, SHUFFLES)
    assert measured.cpu_s >= 0


def test_of_many_columns_those_that_move_the_predictions_are_measured():
    feed, places = rows_of(200, 100)
    predict = predicted_by(*np.zeros(99), 1)
    measured = measure_importances(predict, feed, places, mean_error_from(feed["x99"]))
    assert (len(measured.columns), measured.num_columns, measured.columns[0].column) == (MOST_COLUMNS, 100, "x99")


def test_an_expensive_model_is_measured_on_fewer_rows_or_not_at_all(monkeypatch):
    feed, places = rows_of(400, 12)
    clock = iter(np.arange(0, 1e6, 0.05))
    monkeypatch.setattr(importance.time, "process_time", lambda: next(clock))
    assert measure_importances(predicted_by(1), feed, places, mean_error_from(feed["x0"])).num_rows == LEAST_ROWS
    clock = iter(np.arange(0, 1e6, 1.0))
    assert measure_importances(predicted_by(1), feed, places, mean_error_from(feed["x0"])) is None


@pytest.mark.parametrize("loss", [lambda prediction: float("nan")])
def test_too_few_rows_and_an_undefined_goal_say_nothing(loss):
    feed, places = rows_of(400, 3)
    assert measure_importances(predicted_by(1), feed, places, loss) is None
    few, places = rows_of(LEAST_ROWS - 1, 3)
    assert measure_importances(predicted_by(1), few, places, mean_error_from(few["x0"])) is None


def test_a_column_of_a_series_is_shuffled_over_whole_windows(run_prepare, series_spec, series):
    _, preparation = run_prepare(series, series_spec())
    places = columns_of(preparation)
    assert set(places) == set(preparation.columns)
    windows = np.arange(200 * 4 * len(places), dtype=float).reshape(200, 4, len(places))
    target = windows[:, -1, 0]

    def last_of_first(feeds):
        return np.concatenate([feed["series"][:, -1, 0] for feed in feeds])

    measured = measure_importances(last_of_first, {"series": windows}, places, mean_error_from(target))
    assert measured.columns[0].column == preparation.numeric[0].name
    assert measured.columns[0].loss > 0
    assert np.array_equal(windows[:, -1, 0], target), "the rows themselves stay as they are"
