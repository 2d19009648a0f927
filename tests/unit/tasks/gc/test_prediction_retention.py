"""Old predictions and labels go; those that teach stay while the spec wants to learn of them; readers see no gap."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tasks.gc.prediction_retention import DAY_S, cut_us, forget_old
from tasks.state.feedback import feedback_of
from tasks.state.predictions import joined, label_store, prediction_log
from tests.killing import killed_at
from tests.wide import wide

TIME = pa.timestamp("us", tz="UTC")
NOW = 100 * DAY_S + 5000.0


def add(log, *rows: tuple[str, int], **columns) -> None:
    at = pa.array([datetime.fromtimestamp(day * DAY_S + 60, UTC) for _, day in rows], TIME)
    more = {name: [value] * len(rows) for name, value in columns.items()}
    log.append(pa.table({"id": [one for one, _ in rows], "at": at, **more}))


def fill(state) -> None:
    """Predictions of days 60 to 99, each part of two days; every fifth with a label, and a label of nobody."""
    for day in range(60, 100, 2):
        add(prediction_log(state), (f"p{day}", day), (f"p{day + 1}", day + 1), version="1", score=0.5)
    for day in range(60, 100, 5):
        add(label_store(state), (f"p{day}", day + 1), label="yes", by="Ada")
    add(label_store(state), ("stranger", 61), ("stranger of now", 99), label="yes", by="Ada")


def days(log) -> list[int]:
    return sorted(int(one[1:]) for table in log.scan() for one in table.column("id").to_pylist())


def test_a_cut_moves_once_a_day():
    assert cut_us(30, NOW) == cut_us(30, NOW + 80_000) == 70 * DAY_S * 1_000_000
    assert cut_us(30, NOW + DAY_S) == 71 * DAY_S * 1_000_000


@pytest.mark.parametrize("merged", [False, True])
def test_what_is_old_goes_whatever_part_it_is_in(tmp_path, merged):
    fill(tmp_path)
    log = prediction_log(tmp_path)
    if merged:
        log.compact()
    cursor = log.cursor()
    assert forget_old(tmp_path, cut_us(25, NOW), spare_labelled=False) == 15 + 4
    log = prediction_log(tmp_path)
    assert days(log) == list(range(75, 100))
    assert (log.cursor(), sum(part.rows for part in log.parts())) == (cursor, 25)
    assert min(part.times[0] for part in log.parts()) == (75 * DAY_S + 60) * 10**6
    assert [row for table in log.in_time_order() for row in table.column("id").to_pylist()] == [
        f"p{day}" for day in range(75, 100)
    ]
    assert forget_old(tmp_path, cut_us(25, NOW), spare_labelled=False) == 0
    log.compact()
    assert days(prediction_log(tmp_path)) == list(range(75, 100))
    add(log, ("p100", 100), version="1")
    assert log.cursor() == cursor + 1


def test_all_may_go_and_the_log_goes_on(tmp_path):
    fill(tmp_path)
    forget_old(tmp_path, cut_us(1, NOW + 90 * DAY_S), spare_labelled=False)
    log = prediction_log(tmp_path)
    assert (list(log.scan()), list(log.in_time_order()), list(joined(tmp_path))) == ([], [], [])
    assert (log.parts(), log.compact()) == ([], 0)
    cursor = log.cursor()
    add(log, ("p100", 100), version="1")
    assert (days(prediction_log(tmp_path)), log.cursor()) == ([100], cursor + 1)


def test_labelled_predictions_stay_rows_of_the_dataset(tmp_path):
    fill(tmp_path)
    before = feedback_of(tmp_path)
    assert before.rows == 8
    forget_old(tmp_path, cut_us(25, NOW), spare_labelled=True)
    assert days(prediction_log(tmp_path)) == [60, 65, 70, *range(75, 100)]
    told = [one for table in label_store(tmp_path).scan() for one in table.column("id").to_pylist()]
    assert "stranger" not in told, "nobody will ever predict it"
    assert "stranger of now" in told
    (tmp_path / "feedback.json").unlink()
    after = feedback_of(tmp_path)
    assert (after.rows, after.digest) == (before.rows, before.digest)


@pytest.mark.parametrize("stride", [3, wide(1)])
def test_kill_9_at_every_step_loses_nothing_that_should_stay(tmp_path, stride):
    fill(tmp_path)
    step, cut = 1 - stride, 75
    came_through = False
    while not came_through:
        step, cut = step + stride, min(cut + 1, 99)
        before = cut_us(100 - cut, NOW)
        came_through = not killed_at(step, forget_old, tmp_path, before, spare_labelled=False)
        found = days(prediction_log(tmp_path))
        assert found == sorted(set(found))
        assert set(range(cut, 100)) <= set(found)
    assert step > 5
    assert days(prediction_log(tmp_path)) == list(range(cut, 100))
