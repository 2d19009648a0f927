"""Metrics of language models: bits per character of a model, of a baseline, and of a compressor.

Legend: target (window, position) code points; prediction (window, position) the bits of each character, that is
-log2 of its predicted probability.
"""

from __future__ import annotations

import bz2

import numpy as np

from models.metrics.evaluator import Array, Evaluator, weighted_mean

BLOCK_BYTES = 900_000
"""Block size of bzip2 at its highest level. Source: its manual, 2.4."""
_MARGIN_BYTES = 1_000


def bits_per_char(target: Array, prediction: Array) -> Evaluator:
    """Mean bits per character, each window counted alike; NaN without any."""
    del target
    return weighted_mean(np.asarray(prediction, dtype=np.float64).mean(axis=1))


def unigram_bits(training: Array, target: Array) -> Array:
    """Bits of each target character if characters are independent and occur with their shares in training.

    Args:
        training: Code points of the training text (character,).
        target: Code points to predict, of any shape.

    Source: Laplace's rule of succession: each character of the alphabet, and one for all others, is counted once more.
    """
    characters, counts = np.unique(training, return_counts=True)
    bits = -np.log2(np.append(counts + 1, 1) / (len(training) + len(characters) + 1))
    place = np.minimum(np.searchsorted(characters, target), len(characters) - 1)
    return np.asarray(np.where(characters[place] == target, bits[place], bits[-1]))


def bz2_bits_per_char(training: str, text: str) -> float:
    """Bits per character of `text` for bzip2, which has just read the end of the training text.

    bits(training + text) - bits(training), over the characters of `text`; both at level 9, in UTF-8. The part of the
    training text fits into one block of 900,000 bytes together with `text`: bzip2 carries nothing from one block
    into the next, so with more it would restart somewhere. Unlike the model it also learns from `text` itself.
    """
    encoded = text.encode()
    room = max(0, BLOCK_BYTES - _MARGIN_BYTES - len(encoded))
    before = training.encode()[-room:] if room else b""
    size_bytes = len(bz2.compress(before + encoded, 9)) - (len(bz2.compress(before, 9)) if before else 0)
    return 8 * size_bytes / len(text)
