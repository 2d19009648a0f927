"""What a caller may send to `/invocations`."""

import contextlib
import json

import numpy as np
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.inference.loaded_model import input_schema
from models.inference.row_values import MISSING
from models.serving.mlflow_scoring import FORMATS, LONGEST_ID, checked_ids, scoring_of_csv, scoring_of_json
from tests.served_models import preparation_of
from tests.wide import examples

TASKS = ("binary", "image", "series", "language")
READERS = {task: input_schema(preparation_of(task)) for task in TASKS}
READER = READERS["binary"]
NAMES = st.sampled_from(["x", "y", "c", "picture", "image", "series", "line", "text", "columns", "data", "more"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "u", "AAECAwQF", "1"])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=24,
)
RECORDS = [{"x": 1, "c": "u"}, {"x": None, "c": "v"}]
COLUMNS = {"x": [1, None], "c": ["u", "v"]}
SPLIT = {"columns": ["c", "x"], "data": [["u", 1], ["v", None]], "index": [7, 8]}


def read(body: object) -> dict[str, list[object]]:
    scoring = scoring_of_json(json.dumps(body).encode())
    return {name: values.tolist() for name, values in scoring.rows(READER).feed.items()}


@pytest.mark.parametrize(
    "body",
    [
        {"dataframe_records": RECORDS},
        {"dataframe_split": SPLIT},
        {"instances": RECORDS},
        {"inputs": RECORDS},
        {"inputs": COLUMNS, "params": {}, "signature_name": "serving_default"},
        RECORDS,
    ],
)
def test_every_form_gives_the_same_rows(body: object) -> None:
    found = read(body)
    np.testing.assert_array_equal(found["x"], [1.0, np.nan])
    assert found["c"] == ["u", "v"]


def test_one_record_will_do() -> None:
    assert read(RECORDS[0]) == {"x": [1.0], "c": ["u"]}


def test_nan_is_a_missing_value_as_mlflows_client_sends_it() -> None:
    rows = scoring_of_json(b'{"dataframe_split": {"columns": ["x", "c"], "data": [[NaN, NaN], [1.5, "u"]]}}').rows(
        READER
    )
    np.testing.assert_array_equal(rows.feed["x"], [np.nan, 1.5])
    assert rows.feed["c"].tolist() == ["", "u"]


@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_arrays_are_read_by_kinds_that_have_no_columns(form: str) -> None:
    scoring = scoring_of_json(json.dumps({form: [[[0, 1, 2], [3, 4, 5]]]}).encode())
    assert scoring.rows(input_schema(preparation_of("image"))).feed["image"].shape == (1, 2, 3, 1)
    with pytest.raises(DataError, match="columns by name"):
        scoring.rows(READER)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"x": NaN, "c": Infinity}', "Infinity is no number"),
        (b'{"x": NaN, "c": 1e999}', "more than float64 holds"),
        (b'{"x": NaN, "c": "\\ud800"}', "is not JSON"),
        (b'{"x": NaN, "c": ' + b"[" * 600 + b"]" * 600 + b"}", "is not JSON"),
        (b'{"x": NaN, "c": ' + b"[" * 90000, "is not JSON"),
        (b'{"x": NaN, "c": ' + b"1" * 9000 + b"}", "is not JSON"),
        (b'{"x": NaN', "is not JSON"),
        (b'{"x": 1e999, "c": "u"}', "is not JSON"),
        (b"[" * 5000 + b"]" * 5000, "is not JSON"),
        (b'{"x": "\xff"}', "is not JSON"),
        (b"5", "got 5, expected an object with one of dataframe_records"),
        (b"null", "got null"),
        (b'{"inputs": {}, "instances": []}', "got 'instances', 'inputs', expected one of"),
        (b'{"inputs": {}, "more": 1}', "got 'inputs', 'more'"),
        (b'{"inputs": {}, "params": 5}', "`params`: got 5"),
        (b'{"dataframe_split": []}', "`columns` and `data`"),
        (b'{"dataframe_split": {"columns": ["x"]}}', "`columns` and `data`"),
        (b'{"dataframe_split": {"columns": "x", "data": [[1]]}}', "a list of names"),
        (b'{"dataframe_split": {"columns": ["x", "x"], "data": [[1, 2]]}}', "is there twice"),
        (b'{"dataframe_split": {"columns": ["x", "c"], "data": [[1, "u"], [1]]}}', "row 2: got a list of 1"),
        (b'{"dataframe_split": {"columns": ["x", "c"], "data": []}}', "no rows"),
    ],
)
def test_a_body_that_is_none_of_the_forms_says_why(body: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        scoring_of_json(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "takes 'x'"),
        ([], "no rows"),
        ({"dataframe_records": {"x": [1]}}, "expected a list of rows"),
        ({"inputs": 5}, "without names"),
        ({"instances": [RECORDS[0], 5]}, "row 2: got 5"),
        ({"inputs": {"x": [1], "c": []}}, "'c' has 0 values, another 1"),
    ],
)
def test_rows_that_the_model_cannot_take_say_why(body: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(body)


def test_rows_may_have_the_callers_names() -> None:
    assert scoring_of_json(b'{"inputs": [], "ids": ["a", "b"]}').ids == ["a", "b"]
    assert checked_ids(None) is None


@pytest.mark.parametrize(
    ("ids", "said"),
    [("a", "a list of texts"), ([1], "a list of texts"), ([""], "of 1 to"), (["a", "a"], "twice"), ([{}], "texts")],
)
def test_names_are_texts_each_once(ids: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        checked_ids(ids)
    with pytest.raises(DataError, match=str(LONGEST_ID)):
        checked_ids(["a" * (LONGEST_ID + 1)])


@examples(400)
@given(st.sampled_from(TASKS), st.sampled_from([*FORMATS, None]), JSON)
def test_no_json_does_harm_to_any_kind(task: str, form: str | None, value: object) -> None:
    """Rows, or a `DataError`: nothing else."""
    body = json.dumps(value if form is None else {form: value}).encode()
    with contextlib.suppress(DataError):
        rows = scoring_of_json(body).rows(READERS[task])
        assert rows.num_rows > 0
        assert all(len(values) == rows.num_rows for values in [*rows.feed.values(), *rows.extra.values()])
        assert all(not np.isinf(values).any() for values in rows.feed.values() if values.dtype != object)


@given(st.sampled_from(TASKS), st.one_of(st.binary(max_size=60), st.text(alphabet='xcy,\n"1.e-nu', max_size=60)))
def test_no_csv_does_harm_to_any_kind(task: str, content: bytes | str) -> None:
    body = content if isinstance(content, bytes) else content.encode()
    with contextlib.suppress(DataError):
        assert scoring_of_csv(body).rows(READERS[task]).num_rows > 0


def test_csv_is_read_by_the_models_types() -> None:
    body = '\ufeffc,x,note\r\nu, 1e2 ,5\r\n\r\n,,\r\n"v,w",true,"a\nb"\n'
    rows = scoring_of_csv(body.encode()).rows(READER)
    np.testing.assert_array_equal(rows.feed["x"], [100.0, np.nan, 1.0])
    assert rows.feed["c"].tolist() == ["u", "", "v,w"]
    assert rows.extra == {"note": ["5", None, "a\nb"]}


def test_what_is_missing_in_a_csv_of_training_is_missing_here() -> None:
    assert sorted(MISSING) == sorted(pyarrow.csv.ConvertOptions().null_values)
    lines = "".join(f'"{cell}",{cell},{cell}\n' for cell in MISSING)
    rows = scoring_of_csv(f"x,c,note\n{lines}".encode()).rows(READER)
    assert np.isnan(rows.feed["x"]).all()
    assert set(rows.feed["c"]) == {""}
    assert set(rows.extra["note"]) == {None}


def test_csv_may_have_long_fields() -> None:
    assert scoring_of_csv(b"x,c\n1," + b"a" * 200_000 + b"\n").rows(READER).num_rows == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "got no CSV"),
        (b"\n\n", "got no CSV"),
        (b"x,c\n", "no rows"),
        (b"x,c\n1,u\n1\n", "row 2: got a list of 1, expected a list of 2"),
        (b"x,x\n1,2\n", "twice"),
        (b'x,c\n1,"u\n', "line"),
        (b"x,c\n1,\xff\n", "no UTF-8"),
        (b"x,c\n1_0,u\n", "row 1, column 'x': got '1_0', expected a number"),
        (b"x,c\ninf,u\n", "got inf, expected a number between"),
        (b"c\nu\n", "takes 'x'"),
    ],
)
def test_csv_that_cannot_be_read_says_why(body: bytes, said: str) -> None:
    with pytest.raises(DataError, match=said):
        scoring_of_csv(body).rows(READER)
