import pytest
import torch

from models.nets import mlp, tabm
from models.nets.build import example_inputs
from models.nets.table_columns import embedding_dim


@pytest.mark.parametrize("build", [mlp.build, tabm.build])
def test_every_input_matters(table, build):
    net = build(table, hidden=8).eval()
    base = example_inputs(table, 1)
    for name, column in (("numeric", 2), ("categorical", 0), ("categorical", 1)):
        changed = {key: value.clone() for key, value in base.items()}
        changed[name][0, column] += 1
        assert not torch.equal(net(**base), net(**changed))


def test_embeddings_grow_slowly():
    assert embedding_dim(2) == 2
    assert embedding_dim(10**6) == 50
