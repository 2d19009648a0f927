import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.metrics.holm import holm


def test_holm_equals_the_textbook():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01, 0.04, 0.03, None, 0.005]) == pytest.approx([0.03, 0.06, 0.06, None, 0.02])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_p_value_nor_changes_their_order(values):
    corrected = holm(values)
    assert all(new >= old for new, old in zip(corrected, values, strict=True))
    assert max(corrected, default=0.0) <= 1.0
    assert [corrected[i] for i in np.argsort(values, kind="stable")] == sorted(corrected)
