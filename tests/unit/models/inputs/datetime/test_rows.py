from datetime import UTC, date, datetime

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from onnx import helper

from models.data.encode import encode
from models.data.preparation import Preparation, TargetEncoding
from models.data.prepare import prepare_table, write_rows
from models.errors import DataError
from models.export.preparation_graph import graph_inputs, preparation_part
from models.inference import row_values
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import EARLIEST_S, LATEST_S, as_seconds, datetime_features, fit_datetime

DAY_S, HOUR_S = 86_400.0, 3600.0
NOON_S = datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("column", "seconds"),
    [
        (pa.array(["2024-06-01T12:00:00Z", None, ""]), [NOON_S, np.nan, np.nan]),
        (pa.array(["2024-06-01T14:00:00+02:00"]), [NOON_S]),
        (pa.array([" 2024-06-01 12:00 ", "1970-01-01"]), [NOON_S, 0.0]),
        (pa.array(["1717243200", "0.5"]), [NOON_S, 0.5]),
        (pa.array([date(1969, 12, 31), None]), [-DAY_S, np.nan]),
        (pa.array([1, None]), [1.0, np.nan]),
        (pa.array([datetime(2024, 6, 1, 12)], pa.timestamp("ns")), [NOON_S]),
        (pa.array([datetime(2024, 6, 1, 12, tzinfo=UTC)], pa.timestamp("s", "Europe/Berlin")), [NOON_S]),
        (pa.array(["1970-01-02"]).dictionary_encode(), [DAY_S]),
    ],
)
def test_times_of_every_form_are_seconds_since_1970_in_utc(column, seconds):
    np.testing.assert_array_equal(as_seconds(pa.chunked_array([column]), "when"), seconds)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["soon"], "'when', declared datetime: got 'soon'.*ISO 8601"),
        (["2024-05-31", "1 June", "2024-06-02 07:00"], "got '1 June', expected a time:"),
        (["2024-05-31T14:30:00Z", None, "soon", "later"], "got 'soon', expected a time:"),
        (["1717243200", "soon"], "got 'soon', expected a time:"),
        (["2024-05-31", "2024-06-01T00:00:00Z"], "got '2024-06-01T00:00:00Z', expected all times with a zone, or all"),
        ([1, 1_717_243_200_000], "row 2: got 1.71724e[+]12.*seconds"),
    ],
)
def test_what_is_no_time_is_refused_with_the_cure(values, message):
    with pytest.raises(DataError, match=message):
        as_seconds(pa.chunked_array([pa.array(values)]), "when")


@pytest.mark.parametrize(
    ("seconds", "cycles"),
    [
        (np.arange(0, 400 * DAY_S, 7 * HOUR_S), ["day", "week", "year"]),
        (np.arange(0, 400 * DAY_S, DAY_S), ["week", "year"]),
        (np.arange(0, 30 * DAY_S, HOUR_S), ["day", "week"]),
        (np.arange(0, DAY_S / 2, HOUR_S), []),
        (np.array(["2020-01", "2020-06", "2021-07"], "datetime64[M]").astype("datetime64[s]").astype(float), ["year"]),
        (np.arange(0, 70 * DAY_S, 7 * DAY_S), []),
    ],
)
def test_a_cycle_is_an_input_when_training_spans_it_and_differs_within_it(seconds, cycles):
    part = fit_datetime("when", seconds)
    assert (part.cycles, part.trend) == (cycles, True)


def test_a_time_that_runs_with_the_split_has_no_trend_and_a_constant_no_feature():
    seconds = np.arange(100) * HOUR_S
    assert not fit_datetime("when", seconds, np.arange(100)).trend
    assert fit_datetime("when", seconds, np.arange(100) * 37 % 101).trend
    assert fit_datetime("when", np.array([5.0, np.nan, 5.0])).width == 0
    assert fit_datetime("when", np.array([np.nan])).width == 0


def test_the_trend_stays_within_the_training_range_and_missing_is_zero():
    part = fit_datetime("when", np.arange(0, 400 * DAY_S, 7 * HOUR_S))
    features = datetime_features(np.array([[part.low], [-1e9], [part.high], [9e9], [np.nan]]), [part])
    assert features.shape == (5, part.width)
    assert features[0, -1] == features[1, -1]
    assert features[2, -1] == features[3, -1]
    assert not features[4].any()


def test_the_graph_gives_the_features_of_training_bit_by_bit():
    rng = np.random.default_rng(0)
    parts = [fit_datetime("a", rng.uniform(-1e9, 2e9, 50)), fit_datetime("b", np.arange(60) * HOUR_S)]
    preparation = Preparation(
        kind="table", task="binary", target=TargetEncoding(name="y", classes=["n", "y"]), inputs=[*parts]
    )
    part = preparation_part(preparation, {"numeric"})
    output = helper.make_tensor_value_info("core/numeric", 1, None)
    graph = helper.make_graph(part.nodes, "g", graph_inputs(preparation), [output], part.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    seconds = np.append(rng.uniform(-3e10, 3e10, (500, 2)), [[np.nan, 0.5], [0.0, np.nan]], axis=0)
    (got,) = session.run(None, {"a": seconds[:, 0], "b": seconds[:, 1]})
    np.testing.assert_array_equal(got, datetime_features(seconds, parts))


def test_dates_of_a_table_become_inputs_beside_its_numbers(make_spec, tmp_path):
    days = np.datetime64("2020-01-01") + np.arange(800)
    table = pa.table({"day": days, "at": days, "x": np.arange(800.0), "y": np.arange(800) % 2})
    spec = make_spec(split={"by": "time", "column": "at"})
    rows, preparation = prepare_table(table, spec, tmp_path)
    assert preparation.of(DatetimeInput)[0].cycles == ["week", "year"]
    assert not preparation.of(DatetimeInput)[0].trend
    assert set(preparation.left_out) == {"at"}
    write_rows(rows, preparation, tmp_path)
    assert encode(tmp_path, "test")["numeric"].shape == (preparation.rows["test"], 1 + 4)


def test_the_span_of_times_is_that_of_the_module_that_ships_alone():
    assert (row_values.EARLIEST_S, row_values.LATEST_S) == (EARLIEST_S, LATEST_S)
