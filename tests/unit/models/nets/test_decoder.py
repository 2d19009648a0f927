import pytest
import torch

from models.errors import UsageError
from models.nets import decoder
from models.nets.attention import rotated
from models.nets.splitting import BlockStackView, tensor_plan


@pytest.fixture
def net(text):
    return decoder.build(text, width=16, layers=2, heads=2, lookback=2).eval()


@pytest.fixture
def tokens(text):
    return torch.randint(1, text.num_outputs, (3, text.length))


def test_a_position_sees_nothing_of_what_comes_after_it(net, tokens):
    before = net(tokens)
    tokens[:, 7] = tokens[:, 7] % 8 + 1
    after = net(tokens)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.isclose(before[:, 7:], after[:, 7:]).all(dim=-1).any(), "all later ones see it"


def test_attention_sees_distances_not_places(net, tokens):
    padded = torch.cat([torch.zeros_like(tokens[:, :5]), tokens], dim=1)
    net.embeddings[0].weight.data[0] = 0.0
    (block, _), hidden = net.blocks(), net.enter(tokens)
    shifted = block(net.enter(padded))
    assert shifted.shape[1] == hidden.shape[1] + 5, "any length is taken"
    q = torch.randn(1, 1, 4, 8)
    turned = rotated(torch.cat([q, q], dim=2))
    scores = turned @ turned.transpose(2, 3)
    assert torch.allclose(scores[..., :4, :4], scores[..., 4:, 4:], atol=1e-4)


def test_its_parts_make_its_forward(net, tokens):
    stack = BlockStackView.of(net)
    hidden = stack.enter(tokens=tokens)
    for block in stack.blocks:
        hidden = block(hidden)
    assert torch.equal(stack.leave(hidden), net(tokens=tokens))
    plan, parts = tensor_plan(net)
    assert parts == 2
    assert {plan[f"layers.1.{name}"] for name in ("query_key_value", "widen")} == {"column"}
    assert {plan[f"layers.1.{name}"] for name in ("project", "narrow")} == {"row"}


def test_it_foretells_next_to_nothing_before_it_is_trained(net, tokens, text):
    chances = net(tokens).softmax(dim=-1)
    assert torch.allclose(chances, torch.full_like(chances, 1 / text.num_outputs), atol=0.05)


def test_no_lookback_has_one_embedding(text, tokens):
    net = decoder.build(text, width=8, layers=1, heads=1, lookback=0)
    assert len(net.embeddings) == 1
    assert net(tokens).shape == (3, 12, 9)


def test_heads_that_do_not_divide_the_width_are_refused(text):
    with pytest.raises(UsageError, match="got 12, expected a multiple of 8"):
        decoder.build(text, width=12, heads=4)
