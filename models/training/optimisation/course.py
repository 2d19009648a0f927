"""The default course of a net's training: its length is counted in steps, since no number of epochs fits all sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from models.kinds.data_kind import PerDataKind
from models.nets.catalogue import CatalogueEntry, row_of
from models.project_spec.blocks import Spec

EPOCHS = "train.epochs"
BATCH = "train.batch"
PATIENCE = "train.patience"
AUGMENT = "train.augment"
STEPS, MOST_EPOCHS = 3000, 60
"""Steps that the validation score may stop earlier; a small table is seen at most 60 times."""
SMALLEST_BATCH, LARGEST_BATCH = 32, 256
"""The bounds of a batch that is smaller for a small table; the largest is the usual batch."""
PICTURE_BATCH, FEWEST_PICTURE_STEPS = 64, 400
STEPS_A_PICTURE = 0.3
"""Between the fewest and the most steps: 400 for 1,000 pictures, 3,000 for 10,000 (docs/decisions/0102)."""
STILL, FEWEST_EPOCHS = 0.05, 5
"""A curve still rises if this share of its gain is of the last fifth of at least so many epochs."""
CEILINGS_S: PerDataKind[float] = {"table": 600.0, "image": 3000.0, "series": 600.0, "text": 600.0}
"""Work of a named net's default training, at most; a core does convolutions seven times as fast as the work counts."""
CHOICE_CEILINGS_S: PerDataKind[float] = {"table": 0.0, "image": 3000.0, "series": 0.0, "text": 0.0}
"""The same where a search chooses between families; 0: its budget decides alone."""


def course(spec: Spec, net: str, num_train: int) -> dict[str, Any]:
    """Return the default course of a net's training by spec path; empty if it is not trained by gradient descent.

    Args:
        spec: The project's spec, whose own keys count: a batch that it sets decides the epochs.
        net: By its resolved name.
        num_train: Training examples.
    """
    return _COURSES[spec.data.kind](spec, row_of(net), num_train) if row_of(net).by_descent else {}


def patience_of(epochs: int) -> int:
    """Return the epochs without an improvement that end a default training: a third, as the rate falls late."""
    return max(3, math.ceil(epochs / 3))


def still_rises(values: Sequence[float], direction: str) -> bool:
    """Return whether the last fifth of the epochs brought more than `STILL` of the gain of all: a longer training pays.

    Args:
        values: The goal's metric on validation after each epoch; with fewer than five there is no telling.
        direction: `maximize` or `minimize`.
    """
    if len(values) < FEWEST_EPOCHS or not all(map(math.isfinite, values)):
        return False
    gains = [value if direction == "maximize" else -value for value in values]
    before, best = max(gains[: -(len(gains) // FEWEST_EPOCHS)]), max(gains)
    return best - before > STILL * (best - gains[0])


def _of_rows(spec: Spec, row: CatalogueEntry, num_train: int) -> dict[str, Any]:
    """Return the epochs, and the batch if the net has its own."""
    passes = {}
    if row.steps_an_epoch and "batch" not in spec.train.model_fields_set:
        fitting = 2 ** round(math.log2(max(1, num_train) / row.steps_an_epoch))
        passes[BATCH] = max(SMALLEST_BATCH, min(LARGEST_BATCH, fitting))
    steps = max(1.0, num_train / (passes.get(BATCH) or spec.train.batch or LARGEST_BATCH))
    return {**passes, EPOCHS: max(row.fewest_epochs, min(MOST_EPOCHS, round(STEPS / steps)))}


def _of_pictures(spec: Spec, row: CatalogueEntry, num_train: int) -> dict[str, Any]:
    """Return the recipe of pictures: one cycle, and shifts by up to a tenth of a side."""
    del row
    image = spec.data.image
    assert image is not None
    batch = spec.train.batch if "batch" in spec.train.model_fields_set else PICTURE_BATCH
    steps = min(STEPS, max(FEWEST_PICTURE_STEPS, STEPS_A_PICTURE * num_train))
    epochs = max(1, round(steps / max(1.0, num_train / (batch or PICTURE_BATCH))))
    return {
        BATCH: batch,
        EPOCHS: epochs,
        PATIENCE: patience_of(epochs),
        "train.schedule": "one_cycle",
        AUGMENT: {"shift_pixels": max(1, round(min(image.height, image.width) / 10))},
    }


_COURSES: PerDataKind[Callable[[Spec, CatalogueEntry, int], dict[str, Any]]] = {
    "table": _of_rows,
    "image": _of_pictures,
    "series": _of_rows,
    "text": _of_rows,
}
