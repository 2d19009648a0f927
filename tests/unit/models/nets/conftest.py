import pytest
import torch

from models.nets.sizes import Sizes


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def table() -> Sizes:
    return Sizes("table", "multiclass", num_numeric=3, cardinalities=(4, 7), num_outputs=3)


@pytest.fixture
def image() -> Sizes:
    return Sizes("image", "multiclass", image=(1, 8, 12), num_outputs=5)


@pytest.fixture
def series() -> Sizes:
    return Sizes("series", "regression", num_numeric=2, window=(6, 2))


@pytest.fixture
def text() -> Sizes:
    return Sizes("text", "language", length=12, num_outputs=9)
