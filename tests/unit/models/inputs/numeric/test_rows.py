import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.inputs.categorical.rows import fit_categorical
from models.inputs.numeric.record import NumericInput
from models.inputs.numeric.rows import encode_numeric, fit_numeric
from models.project_spec.blocks import Features

VALUES = np.array([1.0, 2.0, np.nan, 3.0, 10.0])


@pytest.mark.parametrize(("impute", "fill"), [("median", 2.5), ("mean", 4.0), ("zero", 0.0)])
def test_missing_values_are_filled_as_the_spec_says(impute, fill):
    assert fit_numeric("x", VALUES, Features(impute=impute)).fill == fill


@pytest.mark.parametrize(
    ("normalise", "shift", "scale"),
    [("standard", 4.0, 12.5**0.5), ("minmax", 1.0, 9.0), ("none", 0.0, 1.0), ("robust", 2.5, 3.0)],
)
def test_values_are_scaled_as_the_spec_says(normalise, shift, scale):
    part = fit_numeric("x", VALUES, Features(normalise=normalise))
    assert (part.shift, part.scale) == pytest.approx((shift, scale))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_constant_column_is_not_divided_by_its_rounding(value):
    assert fit_numeric("x", np.full(1000, value), Features()).scale == 1.0


def test_no_value_is_refused():
    with pytest.raises(DataError, match="no value at all"):
        fit_numeric("x", np.array([np.nan]), Features())
    with pytest.raises(DataError, match="no value at all"):
        fit_categorical("x", pa.chunked_array([pa.array([None], pa.string())]), "string", Features())


def test_a_column_in_a_tiny_unit_is_no_constant():
    values = np.random.default_rng(0).normal(3e-13, 1e-13, 1000)
    assert fit_numeric("farads", values, Features()).scale == pytest.approx(1e-13, rel=0.1)


@pytest.mark.parametrize("normalise", ["standard", "minmax"])
def test_a_sentinel_at_the_end_of_all_numbers_is_refused(normalise):
    values = np.array([1.0, 2.0, -1.797e308, 1.797e308])
    with pytest.raises(DataError, match=r"'x': its spread is no finite number, because its values reach 1.797e\+308"):
        fit_numeric("x", values, Features(normalise=normalise))


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=20), st.floats(0.01, 100))
def test_numbers_follow_the_stated_arithmetic(values, scale):
    part = NumericInput(name="x", fill=3.0, shift=1.5, scale=scale)
    expected = [((3.0 if value != value else value) - 1.5) / scale for value in values]
    assert np.allclose(encode_numeric(np.array(values), part), np.array(expected, np.float32))
