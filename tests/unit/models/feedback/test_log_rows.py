"""Records of servers as rows of the logs."""

import base64
from datetime import UTC, datetime

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.feedback.log_rows import MOST_RAW, label_rows, prediction_rows
from models.inference.batch import ReadOptions, examples, logged_columns, part_of
from models.inference.loaded_model import LoadedModel
from models.project_spec.blocks import Data, Image, Split, Text
from models.project_spec.window import Window
from models.serving.records import PredictionRecorder
from tasks.state.delta import delta_log
from tasks.state.predictions import prediction_log
from tests import wide
from tests.served_models import write_served

ONE = {
    "ids": ["a"],
    "at": 1,
    "version": "1",
    "score": [0.5],
    "names": ["x"],
    "numbers": [1.0],
    "texts": {"c": ["u"]},
    "raw": {},
}


def test_requests_of_one_version_are_one_table_with_the_types_of_the_log():
    other = {**ONE, "ids": ["b", "c"], "at": 2, "score": [0.1, 0.2], "numbers": [None, 3.0], "texts": {"c": ["", "v"]}}
    table = prediction_rows([ONE, other])
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table.column("id").to_pylist() == ["a", "b", "c"]
    assert table.column("origin").to_pylist() == ["serve"] * 3
    assert [one.timestamp() for one in table.column("at").to_pylist()] == [1e-6, 2e-6, 2e-6]
    numbers = table.column("input.x").to_numpy()
    assert (numbers.dtype, numbers[0], np.isnan(numbers[1])) == (np.float64, 1.0, True)
    assert table.column("input.x").null_count == 0, "what was missing is NaN, as the graph was given it"
    assert table.column("input.c").to_pylist() == ["u", "", "v"]


def test_a_number_that_was_always_missing_is_a_number():
    table = prediction_rows([{**ONE, "numbers": [None]}])
    assert table.schema.field("input.x").type == pa.float64()


def test_versions_with_other_columns_stand_in_one_table():
    many = {
        **ONE,
        "version": "2",
        "names": ["z"],
        "numbers": [2.0],
        "texts": {},
        "scores": [[0.1, 0.9]],
        "raw": {"why": ["w"]},
    }
    del many["score"]
    table = prediction_rows([ONE, many])
    assert table.column("input.z").to_pylist() == [None, 2.0]
    assert table.column("scores").to_pylist() == [None, [0.1, 0.9]]
    assert table.column("raw.why").to_pylist() == [None, "w"]


def test_raw_columns_have_their_own_type_and_become_text_where_there_is_none_in_common():
    raw = [
        {"n": [1], "m": [1], "d": [{"k": 1}], "b": [{"bytes": "AP8="}]},
        {"n": [None], "m": ["x"], "d": [[2]], "b": [None]},
    ]
    table = prediction_rows([{**ONE, "raw": each} for each in raw])
    assert table.column("raw.n").to_pylist() == [1, None]
    assert table.column("raw.m").to_pylist() == ["1", "x"]
    assert table.column("raw.d").to_pylist() == ['{"k": 1}', "[2]"]
    assert table.column("raw.b").to_pylist() == ['{"bytes": "AP8="}', None]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2) | st.just("bytes"), inner, max_size=2)
    ),
    max_leaves=4,
)


@wide.examples(20)
@given(raw=st.lists(st.dictionaries(st.sampled_from(["a", "b", ""]), VALUES, max_size=3), min_size=1, max_size=6))
def test_whatever_callers_send_beside_the_inputs_can_be_kept_and_merged(tmp_path_factory, raw):
    """One at a time or together: else one request could keep all after it out of the log."""
    records = [{**ONE, "raw": {name: [value] for name, value in each.items()}} for each in raw]
    log = prediction_log(tmp_path_factory.mktemp("log"))
    for record in records:
        log.append(prediction_rows([record]))
    log.append(prediction_rows(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_log, "FEWEST_PARTS", 2)
        assert log.compact() > 0
    assert sum(table.num_rows for table in log.scan()) == 2 * len(records)
    assert sum(table.num_rows for table in log.in_time_order()) == 2 * len(records)


def test_a_picture_stands_beside_another_version_that_has_none():
    picture = {**ONE, "version": "2", "pictures": {"p": [{"bytes": "AP8="}]}}
    assert prediction_rows([picture]).column("raw.p").to_pylist() == [b"\x00\xff"]
    for sent, told in (({"bytes": 5}, [b'{"bytes": 5}', b"\x00\xff"]), (5, ["5", "AP8="])):
        assert prediction_rows([{**ONE, "raw": {"p": [sent]}}, picture]).column("raw.p").to_pylist() == told


def test_callers_cannot_make_a_table_of_any_width():
    records = [{**ONE, "raw": {"note": ["n"], f"column {number}": [number]}} for number in range(MOST_RAW + 50)]
    table = prediction_rows(records)
    assert table.num_rows == len(records)
    assert sum(name.startswith("raw.") for name in table.column_names) == MOST_RAW
    assert table.column("raw.note").null_count == 0


def test_labels_in_the_order_in_which_they_came():
    late = {"ids": ["a"], "labels": ["no"], "at": 9, "by": "Ada"}
    early = {"ids": ["a", "b"], "labels": ["yes", "yes"], "at": 3, "by": "Bob"}
    rows = label_rows([late, early]).select(["id", "label", "by"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("a", "yes", "Bob"), ("b", "yes", "Bob"), ("a", "no", "Ada")]


TABLES = {"x": [1.5, None], "c": ["u", None], "note": ["a", "b"]}
GIVEN = {
    "binary": TABLES,
    "multiclass": TABLES,
    "regression": TABLES,
    "image": {"picture": [bytes(6), bytes(range(6))], "note": ["a", None]},
    "series": {"when": [1, 2, 3, 4], "x": [0.5, None, 1.0, 2.0], "y": [1.0, 2.0, 3.0, 4.0]},
    "language": {"line": ["ab c", "a"]},
}
DATA = {
    "image": {"kind": "image", "image": Image(column="picture", height=2, width=3)},
    "series": {"kind": "series", "window": Window(length=3), "split": Split(by="time", column="when")},
    "language": {"kind": "text", "text": Text(column="line")},
}


@pytest.mark.parametrize("task", GIVEN)
def test_served_rows_are_logged_as_batch_prediction_logs_them(tmp_path, task):
    write_served(tmp_path, task)
    data = Data(**{"source": "x.csv", "target": "line" if task == "language" else "y", **DATA.get(task, {})})
    pq.write_table(pa.table(GIVEN[task]), tmp_path / "rows.parquet")
    served, at = LoadedModel("tiny", "3", tmp_path), datetime.fromtimestamp(7e-6, UTC)
    reading = ReadOptions(data, served.preparation, tmp_path, {})
    ((rows_given, feed),) = examples(reading, [tmp_path / "rows.parquet"], "rows")
    ids = [f"r{row}" for row in range(rows_given.num_rows)]
    part = part_of(served, rows_given, feed, pa.array(ids), at, data)
    batch = part.select(logged_columns(part.schema)).replace_schema_metadata(None)

    sent = {name: [_sent(value) for value in values] for name, values in GIVEN[task].items()}
    rows = served.schema.from_columns(sent)
    record = PredictionRecorder(served.preparation).record(ids, 7, rows, served.answer(rows.feed))
    found = prediction_rows([orjson.loads(record)])
    lacking = {"score", "scores"} - set(found.column_names)  # of which the log makes nulls
    assert set(found.column_names) | lacking == set(batch.column_names)
    for name in set(batch.column_names) - lacking - {"origin"}:
        assert found.schema.field(name).type == batch.schema.field(name).type, name
        assert repr(found.column(name).to_pylist()) == repr(batch.column(name).to_pylist()), name
    assert all(batch.column(name).null_count == len(ids) for name in lacking)


def _sent(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
