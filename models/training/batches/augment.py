"""Augmentation of training examples that keeps their label valid: plain torch, fixed by (seed, epoch, step, rank)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from models.distributed.order import seed_of
from models.project_spec.methods import Augment


def is_on(augment: Augment) -> bool:
    """Return whether the spec sets any augmentation."""
    return any(augment.model_dump().values())


@dataclass
class Augmenter:
    """The augmentation of one batch, drawn from the batch's own generator, which its position in the training seeds."""

    augment: Augment
    generator: np.random.Generator

    @classmethod
    def at(cls, augment: Augment, seed: int, epoch: int, step: int, rank: int) -> Augmenter:
        """Return the augmenter for the batch of `rank` in micro-step `step` of `epoch`."""
        return cls(augment, np.random.default_rng(seed_of("augment", seed, epoch, step, rank)))

    def move(self, image: torch.Tensor) -> torch.Tensor:
        """Augment images (batch, channel, height, width) in [0, 1]; the empty edges after a move are black."""
        batch, _, height, width = image.shape
        if self.augment.rotate_degrees or self.augment.shift_pixels:
            angle = self._uniform(batch, np.deg2rad(self.augment.rotate_degrees), image)
            across = self._uniform(batch, 2 * self.augment.shift_pixels / width, image)
            down = self._uniform(batch, 2 * self.augment.shift_pixels / height, image)
            cos, sin = angle.cos(), angle.sin()
            ratio = height / width
            affine = torch.stack([cos, -sin * ratio, across, sin / ratio, cos, down], dim=1).view(batch, 2, 3)
            grid = F.affine_grid(affine, list(image.shape), align_corners=False)
            image = F.grid_sample(image, grid, align_corners=False)
        if self.augment.brightness:
            factor = 1 + self._uniform(batch, self.augment.brightness, image)
            image = (image * factor.view(-1, 1, 1, 1)).clamp_(0, 1)
        if self.augment.flip:
            chosen = torch.from_numpy(self.generator.random(batch) < 0.5).to(image.device)
            image = torch.where(chosen.view(-1, 1, 1, 1), image.flip(-1), image)
        return self._erase(image) if self.augment.erase else image

    def disturb(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add noise to the numbers of a table or a series, and swap table values with other rows of the batch.

        Source: swap noise as in Porto Seguro's winning denoising autoencoder (Jahrer 2017).
        """
        changed = dict(inputs)
        if self.augment.swap:
            for name in ("numeric", "categorical"):
                if name in changed and changed[name].shape[1]:
                    changed[name] = self._swap(changed[name])
        if self.augment.noise:
            for name in ("numeric", "series"):
                if name in changed:
                    changed[name] = changed[name] + self._normal(changed[name]) * self.augment.noise
        return changed

    def mix(self, count: int) -> tuple[float, torch.Tensor] | None:
        """Return the share of each example that stays and the index of its partner (count,); None without mixup.

        Source: Zhang et al. 2018, mixup.
        """
        if not self.augment.mixup_alpha:
            return None
        share = float(self.generator.beta(self.augment.mixup_alpha, self.augment.mixup_alpha))
        return share, torch.from_numpy(self.generator.permutation(count))

    def _uniform(self, count: int, bound: float, like: torch.Tensor) -> torch.Tensor:
        drawn = self.generator.uniform(-bound, bound, count).astype(np.float32)
        return torch.from_numpy(drawn).to(like.device)

    def _normal(self, like: torch.Tensor) -> torch.Tensor:
        drawn = self.generator.standard_normal(tuple(like.shape), dtype=np.float32)
        return torch.from_numpy(drawn).to(like.device)

    def _swap(self, values: torch.Tensor) -> torch.Tensor:
        """Replace each value, with probability `swap`, by the value of another row in the same column."""
        rows, columns = values.shape
        is_swapped = torch.from_numpy(self.generator.random((rows, columns)) < self.augment.swap).to(values.device)
        partners = torch.from_numpy(self.generator.integers(0, rows, (rows, columns))).to(values.device)
        return torch.where(is_swapped, values.gather(0, partners), values)

    def _erase(self, image: torch.Tensor) -> torch.Tensor:
        """Draw a black rectangle of 1/8 to 1/2 of each side into some images.

        Source: DeVries and Taylor 2017 (cutout), Zhong et al. 2020 (random erasing).
        """
        batch, _, height, width = image.shape
        blotted = torch.ones(batch, 1, height, width)
        for index in np.flatnonzero(self.generator.random(batch) < self.augment.erase):
            tall, broad = (max(1, round(side * self.generator.uniform(0.125, 0.5))) for side in (height, width))
            top, left_edge = (
                self.generator.integers(0, height - tall + 1),
                self.generator.integers(0, width - broad + 1),
            )
            blotted[index, :, top : top + tall, left_edge : left_edge + broad] = 0
        return image * blotted.to(image.device)
