"""Values of a target become what a net learns, and come back."""

import numpy as np
import pyarrow as pa
import pytest

from models.data.target_forms import fit_target


def test_a_logarithm_of_zeros_is_undone_exactly(make_spec):
    values = np.array([0.0, 0.5, 3.0, 400.0])
    target = fit_target(pa.table({"y": values}), make_spec().data, "regression", is_log=True)
    assert target.log_offset == 0.5
    np.testing.assert_allclose(target.decode(target.encode(values)), values, rtol=1e-12, atol=1e-12)
    assert target.encode(values).std() == pytest.approx(1.0)
    assert target.spread == pytest.approx(values.std())
    assert target.decode(np.array([-9.0])) == [0.0], "a count of bicycles below zero"
