import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.monitoring.grid import BinEdges

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=64)
EDGES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30, unique=True).map(sorted)


@given(EDGES, arrays(np.float64, 40, elements=VALUES))
def test_a_grid_places_as_a_binary_search_does(edges: list[float], values: np.ndarray) -> None:
    values = np.r_[values, edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)]
    placed = BinEdges(np.array(edges)).place(values)
    assert placed.tolist() == np.searchsorted(edges, values, side="right").tolist()


@pytest.mark.parametrize("spread", [1e-12, 1.0, 1e12])
def test_a_grid_places_a_smooth_column(spread: float) -> None:
    values = np.random.default_rng(0).standard_normal(5000) * spread
    edges = np.unique(np.quantile(values, np.arange(1, 256) / 256))
    assert (BinEdges(edges).place(values) == np.searchsorted(edges, values, side="right")).all()


@pytest.mark.parametrize("edges", [[], [3.0], [-1e308, 1e308], [0.0, 5e-324], [*np.linspace(0, 1e-9, 200), 1e9]])
def test_edges_that_no_grid_fits_are_searched(edges: list[float]) -> None:
    values = np.array([np.nan, -np.inf, -1.0, 0.0, 1e-10, 3.0, 1e308, np.inf])
    assert BinEdges(np.array(edges)).place(values).tolist() == np.searchsorted(edges, values, side="right").tolist()
