"""Sample texts that a trained net generates, so that people can judge its quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.data.preparation import TextInput
from models.data.text import indices_of
from models.frozen_model import FrozenModel
from models.sources.code_points import code_points

if TYPE_CHECKING:
    from torch import nn

TEMPERATURES = (0.5, 0.8, 1.0)
LENGTH = 240


class Sample(FrozenModel):
    """A prompt and its continuation, drawn at a temperature (below 1: more probable characters)."""

    temperature: float
    prompt: str
    text: str


def write_samples(
    net: nn.Module, characters: TextInput, prompt: str, seed: int = 0, length: int = LENGTH
) -> list[Sample]:
    """Let the net continue a prompt, once for each temperature; the same seed gives the same texts.

    Cost: one forward pass of a window for each character.
    """
    import torch

    source = torch.Generator().manual_seed(seed)
    first = torch.from_numpy(indices_of(code_points(prompt), characters)).long()
    tokens = first.repeat(len(TEMPERATURES), 1)
    scale = torch.tensor(TEMPERATURES).unsqueeze(1)
    with torch.inference_mode():
        for _ in range(length):
            logits = net(tokens=tokens[:, -characters.length :])[:, -1].float() / scale
            logits[:, 0] = float("-inf")  # index 0 is for unseen characters and has no character to print
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(dim=1), 1, generator=source)], dim=1)
    drawn = tokens[:, len(first) :].tolist()
    return [
        Sample(temperature=temperature, prompt=prompt, text="".join(characters.alphabet[index - 1] for index in row))
        for temperature, row in zip(TEMPERATURES, drawn, strict=True)
    ]


def as_plain_text(samples: list[Sample]) -> str:
    """Return all samples as one plain text."""
    parts = [f"=== temperature {sample.temperature:g} ===\n{sample.prompt}|{sample.text}\n" for sample in samples]
    return "The prompt, which is the beginning of the validation text, ends at the first bar.\n\n" + "\n".join(parts)
