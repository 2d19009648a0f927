"""Augmentation by the user's own function of a training batch, seeded by the batch's place in the training."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from models.data.preparation import Preparation
from models.errors import UserCodeError
from models.inputs.record import InputRecord
from models.inputs.records import owners
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Kind
from models.project_spec.references import call, resolve
from models.training.batches.example_set import Inputs


class InputColumn(NamedTuple):
    """A column of a batch: its places in a tensor of the net's inputs, along the last axis.

    A column of one value a row or step has no axis of its own. `cardinality` is the number of indices of a categorical
    column, else None.
    """

    name: str
    tensor: str
    places: list[int]
    has_axis: bool = False
    cardinality: int | None = None


@dataclass(frozen=True)
class OwnAugmentation:
    """The function that `train.augment.function` names.

    It takes images as a tensor (batch, channel, height, width) in [0, 1], and a table or a series as a dict of columns:
    (batch,) or (batch, step), float32 as the net gets them, int64 indices of categories.
    """

    reference: str
    function: Callable[..., Any]
    columns: tuple[InputColumn, ...] = ()

    @classmethod
    def of(cls, reference: str, base: Path, preparation: Preparation) -> OwnAugmentation:
        """Return the function after a trial on random examples of the data's shape.

        Raises:
            UsageError: There is no such function.
            UserCodeError: It raises, returns other names, shapes or types, or draws what no seed decides.
        """
        augmentation = cls(reference, resolve(reference, base), columns_of(preparation.kind, preparation.inputs))
        inputs = _random_inputs(preparation, augmentation.columns)
        first, second = (augmentation.change(_copy(inputs), 1) for _ in range(2))
        augmentation.change(
            {name: tensor[:1].clone() for name, tensor in inputs.items()}, 2
        )  # a last batch may be small
        if not all(tensor.isfinite().all() for tensor in first.values()):
            examples = "images in [0, 1]" if preparation.pixels else "finite numbers"
            raise UserCodeError(
                f"{augmentation._where}: returned numbers that are not finite for {examples}: correct it"
            )
        if not all(torch.equal(first[name], second[name]) for name in first):
            raise UserCodeError(
                f"{augmentation._where}: returned another batch for the same seed, so a resumed run would differ: "
                "draw with "
                "torch, numpy.random or random, without a generator of your own"
            )
        return augmentation

    def change(self, inputs: Inputs, seed: int) -> Inputs:
        """Return the inputs of a batch as the user's function changes them; images are in [0, 1].

        It draws from the generators of torch, numpy and random: they have this seed inside, and their own state after.

        Raises:
            UserCodeError: The function raises, or returns other names, shapes or types.
        """
        if "image" in inputs:
            images = inputs["image"]
            return {"image": self._checked("", self._call(images, seed, images.device), images)}
        columns = {column.name: _part(inputs, column) for column in self.columns}
        device = next(iter(inputs.values())).device
        returned = self._call({name: values.clone() for name, values in columns.items()}, seed, device)
        if not isinstance(returned, Mapping) or {*returned} != {*columns}:
            raise UserCodeError(
                f"{self._where}: returned {_difference(returned, columns)}, expected a dict of the columns that it "
                "got: "
                "return each of them, changed or not"
            )
        changed = _copy(inputs)
        for column in self.columns:
            values = self._checked(f"column {column.name!r} as ", returned[column.name], columns[column.name])
            self._check_indices(column, values)
            changed[column.tensor][..., column.places] = values if column.has_axis else values[..., None]
        return changed

    def _call(self, batch: Any, seed: int, device: torch.device) -> Any:
        with _seeded(seed, device), torch.no_grad():
            return call(self.function, self._where, batch)

    def _checked(self, subject: str, returned: object, original: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor that the user's function made; its own tensor stays the function's."""
        shape, dtype = original.shape, original.dtype
        if not isinstance(returned, torch.Tensor) or returned.shape != shape or returned.dtype != dtype:
            got = (
                f"{tuple(returned.shape)} {returned.dtype}"
                if isinstance(returned, torch.Tensor)
                else type(returned).__name__
            )
            raise UserCodeError(
                f"{self._where}: returned {subject}{got} for {tuple(shape)} {dtype}, expected a tensor of the same "
                "shape "
                "and type: return the whole batch, changed"
            )
        return returned.to(original.device).clone()

    def _check_indices(self, column: InputColumn, indices: torch.Tensor) -> None:
        """Refuse an index that is no category: an embedding would fail on it, on a GPU without a cause."""
        if column.cardinality is None:
            return
        low, high = (int(end) for end in indices.aminmax())
        if low < 0 or high >= column.cardinality:
            raise UserCodeError(
                f"{self._where}: returned the index {low if low < 0 else high} in column {column.name!r}, expected 0 "
                f"(missing) to {column.cardinality - 1}: take indices of other rows, or 0"
            )

    @property
    def _where(self) -> str:
        return f"train.augment.function {self.reference}"


_TENSORS: PerDataKind[str] = {"table": "numeric", "image": "image", "series": "series", "text": "tokens"}
"""The tensor that holds the numbers of an example."""


def columns_of(kind: Kind, inputs: list[InputRecord]) -> tuple[InputColumn, ...]:
    """Return the columns of a batch of a table or a series, in the order of the net's inputs; none for other kinds."""
    tensor = _TENSORS[kind]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(owners(inputs)):
        places.setdefault(name, []).append(place)
    numbers = [part for part in inputs if part.width]
    columns = [InputColumn(part.name, tensor, places[part.name], part.axis is not None) for part in numbers]
    indices = enumerate((part.name, cardinality) for part in inputs for cardinality in part.cardinalities)
    columns += [InputColumn(name, "categorical", [place], False, number) for place, (name, number) in indices]
    return tuple(columns)


def _part(inputs: Inputs, column: InputColumn) -> torch.Tensor:
    """Return a copy of a column."""
    values = inputs[column.tensor][..., column.places]
    return values if column.has_axis else values.squeeze(-1)


def _difference(returned: object, columns: Mapping[str, torch.Tensor]) -> str:
    if not isinstance(returned, Mapping):
        return type(returned).__name__
    lacking = next((name for name in columns if name not in returned), None)
    return f"no column {lacking!r}" if lacking else f"another column, {next(n for n in returned if n not in columns)!r}"


def _copy(inputs: Inputs) -> Inputs:
    return {name: tensor.clone() for name, tensor in inputs.items()}


def _random_inputs(preparation: Preparation, columns: Iterable[InputColumn]) -> Inputs:
    """Return two random examples of the data's shape: images in [0, 1], standardised numbers, indices."""
    draw = np.random.default_rng(0)
    return _RANDOM[preparation.kind](preparation, columns, draw)


def _random_image(preparation: Preparation, columns: Iterable[InputColumn], draw: np.random.Generator) -> Inputs:
    del columns
    image = preparation.required_pixels.image
    return {"image": torch.from_numpy(draw.random((2, image.channels, image.height, image.width))).float()}


def _random_window(preparation: Preparation, columns: Iterable[InputColumn], draw: np.random.Generator) -> Inputs:
    del columns
    shape = (2, preparation.required_window.length, preparation.num_numeric)
    return {"series": torch.from_numpy(draw.standard_normal(shape, dtype=np.float32))}


def _random_rows(preparation: Preparation, columns: Iterable[InputColumn], draw: np.random.Generator) -> Inputs:
    numbers = torch.from_numpy(draw.standard_normal((2, preparation.num_numeric), dtype=np.float32))
    indices = [draw.integers(0, column.cardinality, 2) for column in columns if column.cardinality]
    categorical = torch.from_numpy(np.stack(indices, axis=1)) if indices else torch.zeros(2, 0, dtype=torch.int64)
    return {"numeric": numbers, "categorical": categorical}


_RANDOM: PerDataKind[Callable[[Preparation, Iterable[InputColumn], np.random.Generator], Inputs]] = {
    "table": _random_rows,
    "image": _random_image,
    "series": _random_window,
    "text": _random_rows,
}


@contextlib.contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Give the process-wide generators a seed inside `with`, and their own state after it."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        np.random.seed(seed % (1 << 32))
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
