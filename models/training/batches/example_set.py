"""The examples of one split, gathered into batches by index, never row by row: a class for each kind of data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.distributed.order import SampleOrder
from models.inputs.numeric.rows import encode_numeric
from models.kinds.data_kind import Kind, PerDataKind
from models.nets.sizes import WHOLE_NUMBERS
from models.training.batches.stream import Stream, StreamOrder
from models.training.batches.transfer import rows_on

Inputs = dict[str, torch.Tensor]
Change = Callable[[torch.Tensor], torch.Tensor]

# The original targets of a regression, float64: the scaled targets for training have lost digits.
VALUE = "value"
WEIGHT = "weight"


@dataclass(frozen=True, kw_only=True)
class ExampleSet(ABC):
    """The tensors of one split and the examples in it that count.

    Attributes:
        tensors: Tensors of `models/data/encode.py`, memory-mapped, or the buffers of `stream`.
        keep: Positions of the examples that count, int64; None for all.
        target: The training target of every example in the file or in the buffers.
        value: The target of every example in the file in its own unit, on the CPU; None for classes and characters.
        target_type: The type that the loss needs: float32 (binary, regression) or int64 (classes, characters).
        stream: Reads a file that is too large for memory; None for a file that is mapped whole.
        device: The device of the batches.
    """

    KIND: ClassVar[Kind]
    TARGET: ClassVar[str] = "target"
    """The tensor with a value for each example, which becomes `target`."""

    tensors: Inputs
    target: torch.Tensor
    keep: torch.Tensor | None
    value: torch.Tensor | None = None
    target_type: torch.dtype = torch.float32
    stream: Stream | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def facts(cls, preparation: Preparation, tensors: Inputs) -> dict[str, Any]:
        """Return the fields that this kind of data has beside those of every kind."""
        del preparation, tensors
        return {}

    @classmethod
    def joined(cls, train: Inputs, validation: Inputs) -> Inputs:
        """Return the tensors of the training examples, followed by those of the validation examples. Cost: a copy."""
        return {name: torch.cat([train[name], validation[name]]) for name in train}

    @classmethod
    def apart(
        cls, train: torch.Tensor, validation: torch.Tensor, joined: Inputs, preparation: Preparation
    ) -> torch.Tensor:
        """Return the training examples of a fold that share nothing with its validation examples."""
        del validation, joined, preparation
        return train

    def __len__(self) -> int:
        if self.stream is not None:
            return len(self.stream)
        return len(self.target) if self.keep is None else len(self.keep)

    def order(self, epoch: int, plan: SampleOrder) -> torch.Tensor | StreamOrder:
        """Return the positions of the examples in the order of `epoch`; pass slices of it to `gather`."""
        return plan.epoch(epoch).to(self.device) if self.stream is None else self.stream.order(*plan.part(epoch))

    def targets(self) -> torch.Tensor:
        """Return the targets of all examples that count, in file order; for text (examples, window)."""
        if self.stream is not None:
            return torch.cat([part.to(self.target_type) for part in self.stream.read("target")]).to(self.device)
        return self.target if self.keep is None else self.target.index_select(0, self.keep)

    def values(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return the targets of all examples that count, for metrics: class indices, or exact values in their unit."""
        if self.value is None:
            return self.targets().long().cpu().numpy()
        if self.stream is not None:
            return torch.cat(list(self.stream.read(VALUE))).numpy()
        return (self.value if self.keep is None else self.value.index_select(0, self.keep.cpu())).numpy()

    def weights(self) -> torch.Tensor | None:
        """Return the weights of all examples that count, float32 in file order, on the CPU; None without weights."""
        if WEIGHT not in self.tensors:
            return None
        if self.stream is not None:
            return torch.cat(list(self.stream.read(WEIGHT)))
        weights = self.tensors[WEIGHT]
        return (weights if self.keep is None else weights.index_select(0, self.keep)).cpu()

    @property
    def total_weight(self) -> float:
        """The sum of the weights of all examples that count, or their number; NaN if all weigh 0."""
        weights = self.weights()
        return float(len(self)) if weights is None else float(weights.double().sum()) or float("nan")

    def gather_weight(self, positions: torch.Tensor) -> torch.Tensor | None:
        """Return the weights of the examples at `positions`, float32 (examples,); None without weights."""
        return self._select(WEIGHT, self._at(positions)) if WEIGHT in self.tensors else None

    @abstractmethod
    def gather(self, positions: torch.Tensor, change: Change | None = None) -> Inputs:
        """Return the net's inputs for the examples at `positions`; `change` alters images in [0, 1] before scaling."""

    def inputs(self) -> Inputs:
        """Return the net's inputs for all examples that count."""
        return self.gather(torch.arange(len(self)))

    def gather_target(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the targets of the examples at `positions`: for text the next characters, int64 (examples, window)."""
        indices = self._at(positions)
        if self.stream is not None:
            return rows_on(self.device, self.target, indices).to(self.target_type)
        return self.target.index_select(0, indices).to(self.target_type)

    def to(self, device: torch.device) -> Self:
        """Return the same examples on another device; for the CPU nothing is copied."""
        if device.type == "cpu":
            return self
        if self.stream is not None:
            return replace(self, device=device)
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        keep = None if self.keep is None else self.keep.to(device)
        return replace(self, tensors=tensors, target=self.target.to(device), keep=keep, device=device)

    def with_more(self, tensors: Inputs, target: torch.Tensor) -> Self:
        """Return these examples with more examples of the same kind appended. Cost: a copy of all tensors."""
        count = len(self.target)
        joined = {name: torch.cat([tensor, tensors[name]]) for name, tensor in self.tensors.items()}
        keep = self.keep
        if keep is not None:
            keep = torch.cat([keep, torch.arange(count, count + len(target))])
        return replace(self, tensors=joined, target=torch.cat([self.target, target]), keep=keep)

    def _at(self, positions: torch.Tensor) -> torch.Tensor:
        if self.stream is not None:
            return self.stream.at(positions)
        return positions if self.keep is None else self.keep.index_select(0, positions)

    def _select(self, name: str, indices: torch.Tensor) -> torch.Tensor:
        if self.stream is not None:
            return rows_on(self.device, self.tensors[name], indices)
        return self.tensors[name].index_select(0, indices)


@dataclass(frozen=True, kw_only=True)
class TableSet(ExampleSet):
    """Rows of a table."""

    KIND = "table"

    def gather(self, positions: torch.Tensor, change: Change | None = None) -> Inputs:
        """Return `numeric`, float32 (rows, num_numeric), and the indices of categories and words, int64."""
        del change
        indices = self._at(positions)
        whole = {name: self._select(name, indices).long() for name in self._whole_numbers()}
        return {"numeric": self._select("numeric", indices), **whole}

    def inputs(self) -> Inputs:
        """Return the net's inputs for all rows that count; the numbers of a whole table are not copied."""
        if self.keep is not None or self.stream is not None:
            return super().inputs()
        whole = {name: self.tensors[name].long() for name in self._whole_numbers()}
        return {"numeric": self.tensors["numeric"], **whole}

    def _whole_numbers(self) -> list[str]:
        return [name for name in WHOLE_NUMBERS if name in self.tensors]


@dataclass(frozen=True, kw_only=True)
class ImageSet(ExampleSet):
    """Images; `mean` and `std` of each channel, (channel, 1, 1), scale them."""

    KIND = "image"

    mean: torch.Tensor
    std: torch.Tensor

    @classmethod
    def facts(cls, preparation: Preparation, tensors: Inputs) -> dict[str, Any]:
        """Return mean and standard deviation."""
        del tensors
        pixels = preparation.required_pixels
        return {"mean": torch.tensor(pixels.mean).view(-1, 1, 1), "std": torch.tensor(pixels.std).view(-1, 1, 1)}

    def gather(self, positions: torch.Tensor, change: Change | None = None) -> Inputs:
        """Return `image`, float32 (examples, channel, height, width); `change` alters images in [0, 1] first."""
        image = self._select("image", self._at(positions)).float().div_(255)
        return {"image": (change(image) if change else image).sub_(self.mean).div_(self.std)}

    def to(self, device: torch.device) -> Self:
        """Return the same images on another device."""
        return replace(super().to(device), mean=self.mean.to(device), std=self.std.to(device))


@dataclass(frozen=True, kw_only=True)
class SeriesSet(ExampleSet):
    """Windows of series, `window` steps each.

    `fill` stands for a value that is missing since the window began (feature,); None if all are there.
    """

    KIND = "series"

    window: int
    fill: torch.Tensor | None

    @classmethod
    def facts(cls, preparation: Preparation, tensors: Inputs) -> dict[str, Any]:
        """Return the length of a window, and what stands for missing values."""
        parts = [encode_numeric(np.array(np.nan), part) for part in preparation.numeric]
        has_gaps = bool(tensors["series"].isnan().any())
        fill = torch.from_numpy(np.stack(parts)) if has_gaps else None
        return {"window": preparation.required_window.length, "fill": fill}

    @classmethod
    def joined(cls, train: Inputs, validation: Inputs) -> Inputs:
        """Return the examples of both sides; their steps are those of whole series already."""
        tensors_of_rows = {name: tensor for name, tensor in train.items() if name != "series"}
        return {**super().joined(tensors_of_rows, validation), "series": train["series"]}

    def gather(self, positions: torch.Tensor, change: Change | None = None) -> Inputs:
        """Return `series`, float32 (examples, step, feature)."""
        del change
        ends = self.tensors["end"].index_select(0, self._at(positions))
        steps = torch.arange(1 - self.window, 1, device=ends.device)
        flat = self.tensors["series"].index_select(0, (ends.unsqueeze(1) + steps).flatten())
        windows = flat.view(len(ends), self.window, -1)
        return {"series": windows if self.fill is None else carried_forward(windows, self.fill)}

    def to(self, device: torch.device) -> Self:
        """Return the same windows on another device."""
        return replace(super().to(device), fill=None if self.fill is None else self.fill.to(device))


@dataclass(frozen=True, kw_only=True)
class TextSet(ExampleSet):
    """Windows of a text, `window` characters each; the target of each example is its start, and then its characters."""

    KIND = "text"
    TARGET = "start"

    window: int

    @classmethod
    def facts(cls, preparation: Preparation, tensors: Inputs) -> dict[str, Any]:
        """Return the length of a window."""
        del tensors
        return {"window": preparation.required_characters.length}

    @classmethod
    def joined(cls, train: Inputs, validation: Inputs) -> Inputs:
        """Return the windows of both texts, one text after the other."""
        joined = super().joined(train, validation)
        joined["start"][len(train["start"]) :] += len(train["tokens"])
        return joined

    @classmethod
    def apart(
        cls, train: torch.Tensor, validation: torch.Tensor, joined: Inputs, preparation: Preparation
    ) -> torch.Tensor:
        """Return the training windows that share no character with a validation window."""
        starts, length = joined["start"], preparation.required_characters.length
        low, high = starts[validation[0]], starts[validation[-1]]
        return train[(starts[train] - low <= -length) | (starts[train] - high >= length)]

    def targets(self) -> torch.Tensor:
        """Return the next characters of all windows that count, int64 (examples, window)."""
        return self.gather_target(torch.arange(len(self), device=self.target.device))

    def gather(self, positions: torch.Tensor, change: Change | None = None) -> Inputs:
        """Return `tokens`, int64 (examples, window)."""
        del change
        return {"tokens": self._cut(self._at(positions), 0)}

    def gather_target(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the characters after those of `gather`, int64 (examples, window)."""
        return self._cut(self._at(positions), 1)

    def _cut(self, indices: torch.Tensor, shift: int) -> torch.Tensor:
        starts = self.target.index_select(0, indices)
        places = (starts.unsqueeze(1) + torch.arange(shift, self.window + shift, device=indices.device)).flatten()
        return self.tensors["tokens"].index_select(0, places).view(len(indices), self.window).long()


EXAMPLES: PerDataKind[type[ExampleSet]] = {
    "table": TableSet,
    "image": ImageSet,
    "series": SeriesSet,
    "text": TextSet,
}


def carried_forward(windows: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Return windows (example, step, feature) with the last known value of the window in place of a missing one.

    Where none is known yet, `fill` (feature,) takes its place. The exported graph does the same.
    """
    steps = torch.arange(windows.shape[1], device=windows.device).view(1, -1, 1)
    last = torch.where(windows.isnan(), -1, steps).cummax(dim=1).values
    return torch.where(last < 0, fill, windows.gather(1, last.clamp(min=0)))
