import pytest
import torch

from models.errors import UsageError
from models.nets.build import example_inputs
from models.nets.periodic import MOST_COLUMNS
from models.nets.sizes import Sizes
from models.nets.tabm import SharedLinear, build


@pytest.mark.parametrize("layers", [1, 3])
def test_members_answer_one_by_one_in_training_and_by_their_mean_after_it(table, layers):
    net = build(table, hidden=8, layers=layers, members=4, dropout=0.0)
    inputs = example_inputs(table, 5)
    each = net(**inputs)
    assert each.shape == (5, 4, 3)
    assert len(each.detach().unique(dim=1)[0]) == 4, "members with the same weights differ by their scales"
    torch.testing.assert_close(net.eval()(**inputs), each.mean(dim=1))
    assert net.features(**inputs).shape == (5, 4 * 8)


def test_a_layer_is_that_of_the_paper():
    layer = SharedLinear(3, 2, members=4, is_first=True)
    hidden = torch.randn(5, 1, 3)
    for member in range(4):
        scaled = layer.linear.weight * layer.after[member][:, None] * layer.before[member]
        expected = hidden[:, 0] @ scaled.T + layer.bias[member]
        torch.testing.assert_close(layer(hidden)[:, member], expected)


def test_a_wide_input_is_multiplied_once_for_all_members():
    sizes = Sizes(kind="table", task="binary", num_numeric=MOST_COLUMNS + 1)
    net = build(sizes, hidden=8, members=4)
    first = net.trunk[0]
    assert first.before is None
    assert not torch.equal(first.after[0], first.after[1])
    assert first.linear(torch.zeros(2, 1, sizes.num_numeric)).shape == (2, 1, 8)
    assert net(**example_inputs(sizes, 2)).shape == (2, 4, 1)


def test_sizes_below_one_are_refused(table):
    for name in ("hidden", "layers", "members"):
        with pytest.raises(UsageError, match=rf"model.arguments.{name}: got 0, expected 1 or more"):
            build(table, **{name: 0})
