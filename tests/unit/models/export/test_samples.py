import torch

from models.data.preparation import TextInput
from models.export.samples import TEMPERATURES, as_plain_text, write_samples

CHARACTERS = TextInput(column="text", length=8, stride=8, alphabet="\nabc")


class After(torch.nn.Module):
    """Says that b comes after a, c after b and a after c; sees at most a window."""

    def forward(self, tokens):
        assert tokens.shape[1] <= CHARACTERS.length
        following = (tokens - 1) % 3 + 2
        return torch.nn.functional.one_hot(following, 5) * 20.0


def test_the_net_goes_on_from_the_prompt():
    samples = write_samples(After(), CHARACTERS, "ab", seed=3, length=12)
    assert [sample.temperature for sample in samples] == list(TEMPERATURES)
    assert {sample.text for sample in samples} == {"cabcabcabcab"}
    assert "ab|cabc" in as_plain_text(samples)


class Even(torch.nn.Module):
    def forward(self, tokens):
        return torch.zeros(*tokens.shape, 5)


def test_the_same_seed_writes_the_same_and_nothing_unknown():
    first, again, other = (write_samples(Even(), CHARACTERS, "a", seed=seed, length=60) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert set("".join(sample.text for sample in first)) == set(CHARACTERS.alphabet)
