import torch

from models.nets.linear import build
from models.nets.sizes import Sizes


def _sizes(**counts) -> Sizes:
    return Sizes(kind="table", task="multiclass", num_outputs=3, **counts)


def test_a_category_counts_as_one_input_of_its_own():
    net = build(_sizes(num_numeric=2, cardinalities=(4, 3)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
    numeric, categorical = torch.randn(5, 2), torch.tensor([[0, 2], [1, 1], [3, 0], [2, 2], [0, 0]])
    one_hot = [torch.nn.functional.one_hot(categorical[:, i], n).float() for i, n in enumerate((4, 3))]
    tables = [table.weight for table in net.categories]
    expected = numeric @ net.weight.T + one_hot[0] @ tables[0] + one_hot[1] @ tables[1] + net.bias
    torch.testing.assert_close(net(numeric, categorical), expected)


def test_categories_alone_are_enough():
    net = build(_sizes(num_numeric=0, cardinalities=(4,)))
    assert net(torch.zeros(2, 0), torch.zeros(2, 1, dtype=torch.int64)).shape == (2, 3)
