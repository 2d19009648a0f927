"""Self-supervised pretraining: parts of each example are masked, and the trunk learns to reconstruct them.

Source: masked columns as in Yoon et al. 2020 (VIME), masked patches as in He et al. 2022 (MAE). A linear layer, which
is dropped after the pretraining, reconstructs both from one hidden state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from models.errors import UsageError
from models.kinds.data_kind import PerDataKind
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from models.nets.splitting import Features, features_of
from models.project_spec.methods import Pretrain

LOSS = "pretrain_loss"
Inputs = dict[str, torch.Tensor]


class Reconstructor(nn.Module):
    """A net's trunk and a layer that reconstructs the inputs: numbers or pixels, then the logits of each category."""

    def __init__(self, net: nn.Module, features: Features, width: int, num_outputs: int) -> None:
        super().__init__()
        self.net = net
        self.give_back = nn.Linear(width, num_outputs)
        self._features = features

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the reconstruction (batch, num_outputs) from the inputs of the net's kind, partly masked."""
        output: torch.Tensor = self.give_back(self._features(**inputs))
        return output


def reconstructor(net: nn.Module, sizes: Sizes, name: str) -> Reconstructor:
    """Wrap `net` for pretraining; its own last layer does not change.

    Raises:
        UsageError: The net has no trunk.
    """
    features = features_of(net, name)
    net.eval()
    with torch.no_grad():
        hidden = features(**example_inputs(sizes))
    net.train()
    if hidden.ndim != 2:
        raise UsageError(f"train.pretrain: features of {name} gave {tuple(hidden.shape)}, expected (batch, width)")
    return Reconstructor(net, features, hidden.shape[1], _WIDTHS[sizes.kind](sizes))


@dataclass(frozen=True)
class MaskingScheme:
    """Masks parts of the inputs and computes the loss of their reconstruction."""

    sizes: Sizes
    pretrain: Pretrain

    def hide(self, inputs: Inputs, generator: np.random.Generator) -> tuple[Inputs, torch.Tensor]:
        """Return the masked inputs, and the target (batch, 2, part): the true values, and 1 for each masked part.

        Masked numbers and pixels are 0, their mean; masked categories get the index of unseen categories.
        """
        return _HIDDEN[self.sizes.kind](self, inputs, generator)

    def hide_columns(self, inputs: Inputs, generator: np.random.Generator) -> tuple[Inputs, torch.Tensor]:
        """Hide columns of a table, each by itself."""
        numeric, categorical = inputs["numeric"], inputs["categorical"]
        true = torch.cat([numeric, categorical.to(numeric.dtype)], dim=1)
        hidden = self._drawn(generator, tuple(true.shape), true)
        is_shown = 1 - hidden
        width = numeric.shape[1]
        visible = {
            **inputs,
            "numeric": numeric * is_shown[:, :width],
            "categorical": categorical * is_shown[:, width:].long(),
        }
        return visible, torch.stack([true, hidden], dim=1)

    def loss(self, output: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, /) -> torch.Tensor:
        """Return the mean error of masked parts (squared, or cross-entropy for categories), summed over examples.

        Pretraining knows no weights: `weight` is None.
        """
        del weight
        true, hidden = target[:, 0], target[:, 1]
        output = output.float()
        width = true.shape[1] - len(self.sizes.cardinalities)
        errors = [(output[:, :width] - true[:, :width]).square()]
        start = width
        for position, cardinality in enumerate(self.sizes.cardinalities):
            true_category = true[:, width + position].long()
            errors_of_column = F.cross_entropy(output[:, start : start + cardinality], true_category, reduction="none")
            errors.append(errors_of_column.unsqueeze(1))
            start += cardinality
        expected = self.pretrain.mask * true.shape[1]
        return (torch.cat(errors, dim=1) * hidden).sum() / expected

    def hide_patches(self, inputs: Inputs, generator: np.random.Generator) -> tuple[Inputs, torch.Tensor]:
        """Hide squares of an image, in all channels at once."""
        image = inputs["image"]
        batch, channels, height, width = image.shape
        side = self.pretrain.patch
        cells = self._drawn(generator, (batch, 1, -(-height // side), -(-width // side)), image)
        hidden = cells.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)[:, :, :height, :width]
        target = torch.stack([image.flatten(1), hidden.expand(-1, channels, -1, -1).flatten(1)], dim=1)
        return {"image": image * (1 - hidden)}, target

    def _drawn(self, generator: np.random.Generator, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        drawn = (generator.random(shape) < self.pretrain.mask).astype(np.float32)
        return torch.from_numpy(drawn).to(like.device)


Hide = Callable[[MaskingScheme, Inputs, np.random.Generator], tuple[Inputs, torch.Tensor]]
_HIDDEN: PerDataKind[Hide] = {
    "table": MaskingScheme.hide_columns,
    "image": MaskingScheme.hide_patches,
    "series": MaskingScheme.hide_columns,
    "text": MaskingScheme.hide_columns,
}


def _num_columns(sizes: Sizes) -> int:
    return sizes.num_numeric + sum(sizes.cardinalities)


_WIDTHS: PerDataKind[Callable[[Sizes], int]] = {
    "table": _num_columns,
    "image": lambda sizes: int(np.prod(sizes.image)),
    "series": _num_columns,
    "text": _num_columns,
}
"""Numbers that a reconstruction has."""
