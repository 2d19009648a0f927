"""Metrics of language models: bits a character, of a model, of a baseline, and of a compressor.

Legend: target (window, position) code points; prediction (window, position) the bits that each cost, which is
-log2 of the chance that the model gave it; weight (window,) >= 0 or None for all ones.
"""

from __future__ import annotations

import bz2
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLOCK_BYTES = 900_000
"""What bzip2 looks at together, at its strongest. Source: its manual, 2.4."""
_MARGIN_BYTES = 1_000


def bits_per_char(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean bits of a character, every window counting alike; NaN without any."""
    del target
    values = window_bits(prediction)
    if weight is None:
        return float(values.mean()) if len(values) else float("nan")
    total = weight.sum()
    return float(values @ weight / total) if total > 0 else float("nan")


def window_bits(prediction: Array) -> Array:
    """Mean bits of a character in each window (window,)."""
    return np.asarray(np.asarray(prediction, dtype=np.float64).mean(axis=1))


def unigram_bits(training: Array, target: Array) -> Array:
    """Bits of each target, by the share of its character in the training text.

    Args:
        training: Code points of the training text (character,).
        target: Code points to foretell, of any shape.

    Source: Laplace's rule of succession: each character of the alphabet, and one for all others, is counted once more.
    """
    known, counts = np.unique(training, return_counts=True)
    bits = -np.log2(np.append(counts + 1, 1) / (len(training) + len(known) + 1))
    place = np.minimum(np.searchsorted(known, target), len(known) - 1)
    return np.asarray(np.where(known[place] == target, bits[place], bits[-1]))


def bz2_bits_per_char(training: str, text: str) -> float:
    """Bits a character of `text` with bzip2, which has read the end of the training text before.

    bits(training + text) - bits(training), over the characters of `text`; both at level 9, in UTF-8. The end of the
    training text is cut so that it shares one block of 900,000 bytes with `text`: bzip2 carries nothing from one block
    into the next. Unlike the model, bzip2 also learns from `text` itself.
    """
    encoded = text.encode()
    room = max(0, BLOCK_BYTES - _MARGIN_BYTES - len(encoded))
    before = training.encode()[-room:] if room else b""
    size_bytes = len(bz2.compress(before + encoded, 9)) - (len(bz2.compress(before, 9)) if before else 0)
    return 8 * size_bytes / len(text)
