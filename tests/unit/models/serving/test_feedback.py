"""Labels over HTTP: what may be is what files of labels may say, checked without Arrow."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError
from models.serving.feedback import checked, rows_of_csv
from models.serving.mlflow_scoring import LONGEST_ID
from models.validation.labels import checked_labels
from tests.served_models import preparation_of


def of(classes, dtype, task="binary"):
    return preparation_of(task).model_copy(update={"target": TargetEncoding(name="y", classes=classes, dtype=dtype)})


TEXT = of(["no", "yes"], "string")
WHOLE = of(["0", "1", "10"], "integer")
TRUTH = of(["false", "true"], "boolean")
NUMBER = of(None, "float", "regression")


def test_pairs_by_label_or_by_the_targets_name_and_empty_ones_are_counted():
    rows = [
        {"id": "a", "label": "yes"},
        {"id": 7, "y": "no", "more": 1},
        {"id": "c", "label": None},
        {"id": "a", "y": "yes"},
    ]
    found = checked(rows, TEXT)
    assert (found.pairs, found.empty) == ([("a", "yes"), ("7", "no")], 1)


@pytest.mark.parametrize(
    ("preparation", "value", "label"),
    [
        (WHOLE, 1, "1"),
        (WHOLE, 10.0, "10"),
        (WHOLE, "1.0", "1"),
        (TRUTH, True, "true"),
        (TRUTH, "No", "false"),
        (TRUTH, 0, "false"),
        (NUMBER, "2", "2.0"),
        (NUMBER, 0.1, "0.1"),
    ],
)
def test_values_are_written_as_the_classes_are(preparation, value, label):
    assert checked([{"id": "a", "label": value}], preparation).pairs == [("a", label)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "got no labels"),
        ([{"id": "a", "label": "yes"}, {"id": "b", "label": "yep"}], r"row 2: got label 'yep' of 'y'.*mean 'yes'"),
        (
            [{"id": "a", "label": "yes"}, {"id": "a", "label": "no"}],
            "row 2: id 'a' has label 'no' here and 'yes' in row 1",
        ),
        ([{"label": "yes"}], "row 1, 'id': no id"),
        ([{"id": ["a"], "label": "yes"}], "expected the id of a prediction"),
        ([{"id": "a" * (LONGEST_ID + 1), "label": "yes"}], "expected the id of a prediction"),
        ([{"id": "a", "lable": "yes"}], "did you mean it by 'lable'"),
        ([{"id": "a", "label": {"b": 1}}], "expected text or a number"),
        (["a"], "row 1: got 'a', expected an object"),
    ],
)
def test_one_that_cannot_be_and_none_is_taken(rows, said):
    with pytest.raises(DataError, match=said):
        checked(rows, TEXT)


@pytest.mark.parametrize("value", ["high", float("inf"), True, 10**400])
def test_a_number_must_be_one(value):
    with pytest.raises(DataError, match="expected a number"):
        checked([{"id": "a", "label": value}], NUMBER)


VALUES = st.one_of(
    st.sampled_from(["yes", "no", "0", "1", "10", "1.0", "true", "False", "x", "", "nan", "1e3"]),
    st.integers(-2, 12),
    st.floats(allow_infinity=False, width=16),
)


@given(value=VALUES, preparation=st.sampled_from([TEXT, WHOLE, TRUTH, NUMBER]))
def test_it_is_what_a_file_of_labels_may_say(value, preparation):
    """The same label, or none, or a refusal, as the file of one row has."""

    def said(take):
        try:
            return take()
        except DataError:
            return "refused"

    table = pa.table({"id": ["a"], "label": [value]})
    of_file = said(lambda: checked_labels(table, "id", preparation, "labels").column("label").to_pylist())
    over_http = said(lambda: [label for _, label in checked([{"id": "a", "label": value}], preparation).pairs])
    assert over_http == of_file


@pytest.mark.parametrize("name", ["label", "y"])
def test_a_number_may_have_a_decimal_comma_where_the_target_has(name):
    preparation = NUMBER.model_copy(update={"decimal_commas": ["y"]})
    sent = checked([{"id": "a", name: "1.234,5"}, {"id": "b", name: 1.5}, {"id": "c", name: ""}], preparation)
    assert (sent.pairs, sent.empty) == ([("a", "1234.5"), ("b", "1.5")], 1)
    with pytest.raises(DataError, match=rf"row 2, column '{name}': got '1.5', expected a number with a decimal comma"):
        checked([{"id": "a", name: "1"}, {"id": "b", name: "1.5"}], preparation)


def test_csv():
    assert rows_of_csv(b"\xef\xbb\xbfid,label\na,yes\nb,\n") == [
        {"id": "a", "label": "yes"},
        {"id": "b", "label": None},
    ]
    for body, said in ((b"\xff\xfe", "no UTF-8"), (b"id,label\na\n", "row 1"), (b"id,label\na,b,c\n", "row 1")):
        with pytest.raises(DataError, match=said):
            rows_of_csv(body)


def several(task):
    columns = [OutputColumn(name=name, column=name) for name in ("load", "price")]
    target = TargetEncoding(name="load, price", outputs=columns)
    return preparation_of("binary").model_copy(update={"task": task, "target": target})


@pytest.mark.parametrize(
    ("task", "row", "label"),
    [
        ("regression", {"load": 1, "price": "2.5"}, '{"load": 1.0, "price": 2.5}'),
        ("regression", {"label": {"price": 2.5, "load": 1}}, '{"load": 1.0, "price": 2.5}'),
        ("multilabel", {"label": ["price"]}, '{"load": 0.0, "price": 1.0}'),
        ("multilabel", {"label": []}, '{"load": 0.0, "price": 0.0}'),
        ("multilabel", {"load": True, "price": "no"}, '{"load": 1.0, "price": 0.0}'),
    ],
)
def test_labels_of_several_targets_come_together_over_http_and_by_file(task, row, label):
    assert checked([{"id": "a", **row}], several(task)).pairs == [("a", label)]
    if "label" not in row:
        table = pa.table({"id": ["a"], **{name: [value] for name, value in row.items()}})
        assert checked_labels(table, "id", several(task), "f")["label"].to_pylist() == [label]
    assert checked([{"id": "a", "load": None, "price": ""}, {"id": "b", "label": None}], several(task)).empty == 2


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("regression", {"load": 1}, "no label of 'price'"),
        ("regression", {"load": 1, "price": "much"}, "got label 'much' of 'price', expected a number"),
        ("regression", {"label": ["price"]}, "no label of 'load'"),
        ("multilabel", {"label": ["prize"]}, "did you mean 'price'"),
        ("multilabel", {"load": 0.5, "price": 1}, "got label 0.5 of 'load', expected 0 or 1"),
        ("regression", {}, "no label of 'load'"),
    ],
)
def test_labels_that_lack_a_target_or_are_none_are_refused(task, row, message):
    with pytest.raises(DataError, match=message):
        checked([{"id": "a", **row}], several(task))


def test_a_file_that_lacks_a_target_names_it():
    with pytest.raises(DataError, match=r"expected a column of each target, load, price: no column 'price'"):
        checked_labels(pa.table({"id": ["a"], "load": [1.0]}), "id", several("regression"), "f")
    table = pa.table({"id": ["a", "b"], "load": [1.0, 2.0], "price": [1.0, None]})
    with pytest.raises(DataError, match=r"row 2: no 'price', expected a label of every target"):
        checked_labels(table, "id", several("regression"), "f")
