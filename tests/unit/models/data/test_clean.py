import numpy as np
import pyarrow as pa
import pytest

from models.data.clean import NO_TARGET, REPEATED, dropped_rows, made_features, usable_rows
from models.errors import DataError, UserCodeError


def test_rows_without_target_and_repeated_rows_go_and_positions_stay(make_spec):
    table = pa.table({"x": [1, 1, 2, 3, 3], "y": ["a", "a", None, "b", "c"]})
    data = make_spec(deduplicate=True).data
    kept, positions = usable_rows(table, data)
    assert kept.to_pylist() == [{"x": 1, "y": "a"}, {"x": 3, "y": "b"}, {"x": 3, "y": "c"}]
    assert positions.tolist() == [0, 3, 4]
    assert dropped_rows(table, data, positions) == {NO_TARGET: 1, REPEATED: 1}


def test_equal_rows_are_rows_of_their_own_unless_the_spec_says_otherwise(make_spec):
    table = pa.table({"x": [1, 1, 1], "y": ["a", "a", None]})
    data = make_spec().data
    kept, positions = usable_rows(table, data)
    assert kept.num_rows == 2
    assert dropped_rows(table, data, positions) == {NO_TARGET: 1}


def test_a_missing_value_is_no_zero(make_spec):
    table = pa.table({"x": [0, None, 0.0, np.nan], "y": ["a"] * 4})
    kept, positions = usable_rows(table, make_spec(deduplicate=True).data)
    assert positions.tolist() == [0, 1]
    assert kept.num_rows == 2


def test_a_series_keeps_its_steps(series_spec):
    table = pa.table({"t": [1, 2, 3], "y": [1.0, None, 3.0]})
    assert usable_rows(table, series_spec().data)[0].num_rows == 3


def test_no_target_at_all_is_refused(make_spec):
    with pytest.raises(DataError, match="no value at all"):
        usable_rows(pa.table({"y": pa.nulls(20, pa.string())}), make_spec().data)


def write(folder, body):
    (folder / "own.py").write_text(f"def make(frame):\n    {body}\n")


def test_a_users_function_adds_columns(tmp_path):
    write(tmp_path, "return frame.assign(double=frame['x'] * 2)")
    assert made_features(pa.table({"x": [1, 2]}), "./own.py:make", tmp_path).column("double").to_pylist() == [2, 4]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return frame['nope']", r"raised KeyError: 'nope' \(.*own\.py:2\)|raised KeyError"),
        ("return None", "got a NoneType, expected the pandas DataFrame.*return frame"),
        ("return frame[:1]", "got 1 rows, expected the 2 of its argument"),
        ("return frame.iloc[::-1]", "in the same order"),
        ("return frame.drop(columns='x').assign(z=1)", "no column 'x' in the data"),
        ("return frame.assign(z=[object(), 1])", "a column mixes types|Could not convert"),
    ],
)
def test_a_users_function_that_fails_is_told_as_theirs(tmp_path, body, message):
    write(tmp_path, body)
    with pytest.raises(UserCodeError, match=message) as caught:
        made_features(pa.table({"x": [1, 2]}), "./own.py:make", tmp_path)
    assert "own.py:make" in str(caught.value)


def test_empty_text_is_no_target(make_spec):
    table = pa.table({"x": [1, 2, 3], "y": ["a", "", None]})
    assert usable_rows(table, make_spec().data)[1].tolist() == [0]
    assert usable_rows(table.set_column(1, "y", table["y"].dictionary_encode()), make_spec().data)[1].tolist() == [0]


def test_whole_numbers_with_gaps_stay_whole_beside_what_is_made(tmp_path):
    write(tmp_path, "return frame.assign(double=frame['x'] * 2, stars=frame['stars'].clip(0.5))")
    came = pa.table({"x": [1, 2, 3], "y": [0, None, 2], "stars": [0, 1, None]})
    made = made_features(came, "./own.py:make", tmp_path)
    assert made.column("y").equals(came.column("y"))
    assert made.column("stars").to_pylist() == [0.5, 1.0, None]


def test_large_whole_numbers_with_gaps_pass_the_users_function_unrounded(tmp_path):
    write(tmp_path, "return frame.assign(double=frame['x'] * 2)")
    came = pa.table({"x": [1, 2, 3], "account": [2**53 + 1, None, 2**53], "y": [0, 1, None]})
    made = made_features(came, "./own.py:make", tmp_path)
    assert made.select(came.column_names).equals(came)
