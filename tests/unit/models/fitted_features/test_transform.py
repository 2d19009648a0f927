"""The user's `transform` becomes a graph that training and the served model share."""

import numpy as np
import pytest

from models.errors import UserCodeError
from models.fitted_features.lookup import Lookup
from models.fitted_features.state import FeatureCode, FittedState
from models.fitted_features.transform import run_graph, transform_eagerly, transform_graph

STATE = FittedState(
    [Lookup(name="mean", column="city", keys=["Bern"], values=[2.0])], {"centres": np.array([-1.0, 1.0])}
)
COLUMNS = {"x": np.array([0.5, np.nan, -3.0, 2.0, 0.0]), "mean": np.array([2.0, 2.0, np.nan, 2.0, 2.0])}
NEAREST = "(columns['x'][:, None] - state['centres']).abs().amin(dim=1)"


def code(tmp_path, body):
    (tmp_path / "features.py").write_text(f"import torch\ndef transform(columns, state):\n    return {body}\n")
    return FeatureCode("./features.py:fit", "./features.py:transform", tmp_path)


def test_the_graph_gives_what_the_function_gives_for_any_number_of_rows(tmp_path):
    pair = code(tmp_path, f"{{'near': {NEAREST}, 'above': columns['x'] - columns['mean'], 'mean': columns['mean']}}")
    graph, names = transform_graph(pair, STATE, COLUMNS)
    assert names == ["near", "above", "mean"]
    assert str(tmp_path).encode() not in graph
    made = run_graph(graph, names, {name: values[:2] for name, values in COLUMNS.items()})
    np.testing.assert_array_equal(made["near"], [0.5, np.nan])
    np.testing.assert_array_equal(made["above"], [-1.5, np.nan])
    np.testing.assert_array_equal(made["mean"], [2.0, 2.0])
    with pytest.raises(UserCodeError, match=r"'near' is in a row depends on other rows.*data\.features\.fit"):
        transform_graph(code(tmp_path, "{'near': columns['x'] - columns['x'].nanmean()}"), STATE, COLUMNS)


def test_a_mean_that_fills_missing_numbers_is_refused_where_no_sampled_number_is_missing(tmp_path):
    filled = "{'x': torch.where(columns['x'].isnan(), columns['x'].nanmean(), columns['x'])}"
    whole = {"x": np.arange(9.0), "mean": np.ones(9)}
    with pytest.raises(UserCodeError, match=r"'x' is in a row depends on other rows"):
        transform_graph(code(tmp_path, filled), STATE, whole)


def test_an_infinite_feature_is_missing_in_rows_and_graph(tmp_path):
    pair = code(tmp_path, "{'log': columns['x'].log()}")
    columns = {"x": np.array([1.0, 0.0, np.nan]), "mean": np.ones(3)}
    graph, names = transform_graph(pair, STATE, columns)
    np.testing.assert_array_equal(run_graph(graph, names, columns)["log"], [0, np.nan, np.nan])
    np.testing.assert_array_equal(transform_eagerly(pair, STATE, columns)["log"], [0, np.nan, np.nan])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("None", "got NoneType, expected a dict"),
        ("{'a': columns['x'].nanmean()}", r"'a' is shape \(\), expected a tensor of one number a row, \(5,\)"),
        ("{'a': 1.0}", "'a' is float, expected a tensor"),
        ("{'a': columns['y']}", "raised KeyError"),
    ],
)
def test_what_is_no_feature_is_an_error_before_the_export(tmp_path, body, message):
    with pytest.raises(UserCodeError, match=message):
        transform_eagerly(code(tmp_path, body), STATE, COLUMNS)


def test_what_torch_cannot_export_is_an_error_with_the_cause(tmp_path):
    pair = code(tmp_path, "{'a': torch.special.bessel_j0(columns['x'])}")
    with pytest.raises(UserCodeError, match=r"any number of rows \(No ONNX function found.*operations of torch alone"):
        transform_graph(pair, STATE, COLUMNS)
