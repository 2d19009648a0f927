"""Augmentation by the user's own function of a batch of images, seeded by the batch's place in the training."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.errors import UserCodeError
from models.project_spec.blocks import Image
from models.project_spec.references import call, resolve


@dataclass(frozen=True)
class OwnAugmentation:
    """The function that `train.augment.function` names."""

    reference: str
    function: Callable[..., Any]

    @classmethod
    def of(cls, reference: str, base: Path, image: Image) -> OwnAugmentation:
        """Return the function after a trial on random images of the data's shape.

        Raises:
            UsageError: There is no such function.
            UserCodeError: It raises, returns other shapes or types, or draws what no seed decides.
        """
        own = cls(reference, resolve(reference, base))
        images = torch.from_numpy(np.random.default_rng(0).random((2, image.channels, image.height, image.width)))
        images = images.float()
        first, second = (own.change(images.clone(), 1) for _ in range(2))
        own.change(images[:1].clone(), 2)  # a last batch may be small
        if not first.isfinite().all():
            raise UserCodeError(f"{own._where}: returned numbers that are not finite for images in [0, 1]: correct it")
        if not torch.equal(first, second):
            raise UserCodeError(
                f"{own._where}: returned other images for the same seed, so a resumed run would differ: draw with "
                "torch, numpy.random or random, without a generator of your own"
            )
        return own

    def change(self, images: torch.Tensor, seed: int) -> torch.Tensor:
        """Return images (batch, channel, height, width) in [0, 1] as the user's function changes them.

        It draws from the generators of torch, numpy and random: they have this seed inside, and their own state after.

        Raises:
            UserCodeError: The function raises, or returns another shape or type.
        """
        shape, dtype = images.shape, images.dtype
        with _seeded(seed, images.device), torch.no_grad():
            made = call(self.function, self._where, images)
        if not isinstance(made, torch.Tensor) or made.shape != shape or made.dtype != dtype:
            got = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, torch.Tensor) else type(made).__name__
            raise UserCodeError(
                f"{self._where}: returned {got} for {tuple(shape)} {dtype}, expected a tensor of the same shape and "
                "type: return all images, changed"
            )
        return made.to(images.device).clone()  # what it is made of stays the function's own

    @property
    def _where(self) -> str:
        return f"train.augment.function {self.reference}"


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
