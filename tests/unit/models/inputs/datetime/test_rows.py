import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from onnx import helper

from models.data.encode import encode
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.data.target_encoding import TargetEncoding
from models.export.preparation_graph import graph_inputs, preparation_part
from models.inputs.datetime.record import DatetimeInput
from models.inputs.datetime.rows import datetime_features, fit_datetime

DAY_S, HOUR_S = 86_400.0, 3600.0


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


def test_equal_turns_are_equal_numbers():
    part = fit_datetime("when", np.arange(0, 4 * DAY_S, HOUR_S))
    features = datetime_features(np.arange(0, 4 * DAY_S, HOUR_S)[:, None], [part])
    assert len(np.unique(features[:, 0])) == len(np.unique(features[:, 1])) == 13


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
    hours = np.tile(1.7e9 // DAY_S * DAY_S + np.arange(500)[:, None] * HOUR_S, 2)
    seconds = np.concatenate([rng.uniform(-3e10, 3e10, (500, 2)), hours, [[np.nan, 0.5], [0.0, np.nan]]])
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
