import pytest
import torch

from models.errors import UsageError
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from models.nets.transformer import Encoder, build

WORDS = Sizes("table", "binary", num_numeric=2, num_words=5, vocabularies=(20, 8))


def test_every_kind_of_data_becomes_tokens(table, image, series):
    for sizes in (table, image, series):
        net = build(sizes, width=8, layers=1, heads=2)
        assert net(**example_inputs(sizes, 3)).shape == (3, sizes.num_outputs)


def test_positions_tell_steps_apart(series):
    net = build(series, width=8, layers=1, heads=2).eval()
    torch.nn.init.normal_(net.head.weight)
    steps = torch.randn(1, 6, 2)
    assert not torch.allclose(net(series=steps), net(series=steps.flip(1)), atol=1e-5)


def test_sizes_that_do_not_divide_are_refused(table, image):
    with pytest.raises(UsageError, match="heads: got 3, expected a divisor of width 8"):
        build(table, width=8, heads=3)
    with pytest.raises(UsageError, match="patch: got 5, expected a divisor of 8 and 12"):
        build(image, width=8, heads=2, patch=5)


def net_of_words(**arguments: float) -> Encoder:
    """Return a net whose last layer, which starts at zero, has values."""
    net = build(WORDS, width=8, layers=1, heads=2, **arguments)
    torch.nn.init.normal_(net.head.weight)
    return net


def texts(*rows: list[list[int]]) -> dict[str, torch.Tensor]:
    return {**example_inputs(WORDS, len(rows)), "words": torch.tensor(rows)}


def test_words_and_their_order_count():
    net = net_of_words().eval()
    told = [[3, 2], [4, 1], [5, 7], [0, 0], [0, 0]]
    outputs = net(**texts(told, [told[1], told[0], *told[2:]], [[19, 2], *told[1:]], [[3, 3], *told[1:]]))
    assert len(torch.unique(outputs.detach().round(decimals=5))) == 4


def test_hidden_words_are_unknown_in_training_alone():
    net = net_of_words(dropout=0.0, word_dropout=0.999)
    words = texts([[3, 2], [4, 3], [5, 4], [6, 5], [0, 0]])
    nearly_all = net.tokens.words(words["words"])
    assert (nearly_all == 0).float().mean() > 0.9
    net.eval()
    assert torch.equal(net(**words), net(**words))
    unknown = torch.tensor([[[1, 1]] * 4 + [[0, 0]]])
    assert not torch.allclose(net(**words), net(**{**words, "words": unknown}))
    with pytest.raises(UsageError, match=r"word_dropout: got 1, expected 0 or more and below 1"):
        build(WORDS, word_dropout=1)


def test_without_texts_there_is_no_word():
    assert build(Sizes("table", "binary", num_numeric=2)).tokens.words is None
