"""Pictures are flipped in training where their mirror images keep the label, by a model of the pixels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.training.batches.flips import may_flip


def pictures(num: int, classes: str, side: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright patch: on the left or the right, or at the top or the bottom, of either half."""
    rng = np.random.default_rng(num)
    target = rng.integers(0, 2, num)
    image = rng.integers(0, 120, (num, 1, side, side))
    for row, label in enumerate(target):
        low, across = (label * side // 2, rng.integers(0, side // 2 + 1)) if classes == "rows" else (
            rng.integers(0, side // 2 + 1), label * side // 2)  # fmt: skip
        image[row, :, low : low + side // 2, across : across + side // 2] += 60
    return image.astype(np.uint8), target


def stored(folder: Path, classes: str, change: Any = np.asarray, side: int = 20) -> dict[str, str]:
    for split, num in (("train", 401), ("validation", 100)):
        image, target = pictures(num, classes, side)
        save_file({"image": image, "target": np.ascontiguousarray(change(target))}, folder / split)
    return {split: str(folder / split) for split in ("train", "validation")}


@pytest.mark.parametrize(("classes", "expected"), [("rows", True), ("columns", False)])
@pytest.mark.parametrize("side", [20, 48])
def test_a_mirror_image_keeps_its_label_or_not(tmp_path: Path, classes: str, expected: bool, side: int) -> None:
    assert may_flip(stored(tmp_path, classes, side=side)) == expected


@pytest.mark.parametrize(("classes", "expected"), [("rows", True), ("columns", False)])
def test_numbers_and_labels_are_told_too(tmp_path: Path, classes: str, expected: bool) -> None:
    assert may_flip(stored(tmp_path, classes, lambda target: (target * 3e6 - 5).astype(np.float32))) == expected
    assert may_flip(stored(tmp_path, classes, lambda target: np.stack([target, 1 - target], 1))) == expected


def test_what_cannot_be_learnt_is_not_flipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    assert not may_flip(stored(tmp_path, "rows", rng.permutation))
    assert not may_flip(stored(tmp_path, "rows", np.zeros_like))
