import pytest

from models.estimators.converters import onnx_of
from models.estimators.rows import ROWS


def test_there_is_no_graph_of_an_estimator_yet():
    with pytest.raises(NotImplementedError):
        onnx_of(ROWS["Ridge"], None, 1, 0)
