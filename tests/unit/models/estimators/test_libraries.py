from dataclasses import replace

import numpy as np
import pytest

from models.errors import UsageError, UserCodeError
from models.estimators.libraries import FitData, functions_of
from models.estimators.rows import ROWS, EstimatorRow

MEANS = """
import numpy

def fit(data, settings, before):
    total = numpy.frombuffer(before) if before else numpy.zeros(1)
    return (total + settings["rounds"] * settings["step"]).tobytes()

def predict(model, x):
    return numpy.full(len(x), numpy.frombuffer(model)[0])

FAMILY = {"fit": fit, "predict": predict, "onnx": None}
WRONG_FAMILY = {"fit": lambda data, settings, before: 3, "predict": predict, "onnx": None}
"""
FILE = EstimatorRow(name="means", package="file", tasks=("regression",), num_rounds=10)
SETTINGS = {"rounds": 2, "seed": 0, "threads": 1}


def data_of(classes=0, weight=None):
    """Forty rows of two numbers."""
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) if classes else x[:, 0].astype(np.float64)
    return FitData(x, y, weight, "binary" if classes else "regression", classes, (), None, "bce" if classes else "mse")


def test_a_row_of_a_file_learns_more_rounds_from_its_bytes(tmp_path):
    (tmp_path / "means.py").write_text(MEANS)
    functions, data = functions_of(FILE, "./means.py:FAMILY", tmp_path), data_of()
    first = functions.fit(data, {**SETTINGS, "step": 0.5}, None)
    second = functions.fit(data, {**SETTINGS, "step": 0.5}, first)
    assert functions.predict(second, data.x).tolist() == [2.0] * 40
    assert functions.first is None


def test_what_a_spec_leaves_out_has_the_default_of_the_row(tmp_path):
    (tmp_path / "means.py").write_text(MEANS)
    functions = functions_of(replace(FILE, defaults={"step": 0.25}), "./means.py:FAMILY", tmp_path)
    assert functions.predict(functions.fit(data_of(), SETTINGS, None), data_of().x)[0] == 0.5


def test_what_a_file_returns_is_bytes(tmp_path):
    (tmp_path / "means.py").write_text(MEANS)
    functions = functions_of(FILE, "./means.py:WRONG_FAMILY", tmp_path)
    with pytest.raises(UserCodeError, match=r"WRONG_FAMILY: fit returned int, expected bytes"):
        functions.fit(data_of(), SETTINGS, None)


def test_an_error_of_a_file_names_its_line(tmp_path):
    (tmp_path / "means.py").write_text(MEANS)
    functions = functions_of(FILE, "./means.py:FAMILY", tmp_path)
    with pytest.raises(UserCodeError, match=r"KeyError: 'step' \(.*means.py:6\): look at model.arguments"):
        functions.fit(data_of(), SETTINGS, None)


@pytest.mark.parametrize("name", ["XGBClassifier", "CatBoostClassifier"])
def test_an_argument_that_the_library_refuses_is_told_with_the_class(name, tmp_path):
    row = ROWS[name]
    pytest.importorskip(row.package)
    functions = functions_of(row, f"{row.package}:{name}", tmp_path)
    with pytest.raises(UserCodeError, match=rf"model.net: {row.package}:{name} raised .*look at model.arguments"):
        functions.fit(data_of(2), {**SETTINGS, "learning_rate": "fast"}, None)


def test_a_library_that_is_missing_is_told(tmp_path):
    with pytest.raises(UsageError, match="install it"):
        functions_of(FILE, "no_such_library:FAMILY", tmp_path)
