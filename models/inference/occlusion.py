"""What single words of a text, or patches of a picture, add to a prediction: each is left out in turn.

Source: Matthew D. Zeiler and Rob Fergus (2014), Visualizing and Understanding Convolutional Networks, section 4.2.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.inference.box import Box
from models.inference.predict import Feed

MOST_PARTS = 64
"""Most parts of a row, each a further row that the model predicts; those of several texts together."""
GRID = 8
"""Patches of a picture across and down."""
MOST_CHARACTERS = 20_000
"""Of a text whose words are left out: it is copied for each."""


@dataclass(frozen=True)
class OccludedRows:
    """A row, and below it the same row without one of its parts.

    Attributes:
        column: The column of text or picture.
        parts: The words, or the patches, that are left out.
        feed: The inputs of the graph: the row, then one for each part.
    """

    column: str
    parts: list[str] | list[Box]
    feed: Feed


def without_words(feed: Feed, columns: Sequence[str], last: int = MOST_CHARACTERS) -> Iterator[OccludedRows]:
    """Yield the first row without words of a text, for each column of texts that is no missing one and not too long.

    A text of many words is left out in stretches of some; of more than `MOST_PARTS` columns the last ones are not.

    Args:
        feed: The inputs of the graph.
        columns: Those of texts.
        last: Only words that reach into so many last characters are left out.
    """
    for column in columns[:MOST_PARTS]:
        text = str(feed[column][0])
        words = [word for word in re.finditer(r"\S+", text) if word.end() > len(text) - last]
        if not words or len(text) > MOST_CHARACTERS:
            continue
        size = -(-len(words) // max(1, MOST_PARTS // len(columns)))
        spans = [(words[first].start(), words[first : first + size][-1].end()) for first in range(0, len(words), size)]
        texts = [text, *(text[:start] + text[end:] for start, end in spans)]
        rows = {name: np.repeat(np.asarray(values)[:1], len(texts), axis=0) for name, values in feed.items()}
        rows[column] = np.array(texts, object)
        yield OccludedRows(column, [text[start:end] for start, end in spans], rows)


def without_patches(pictures: np.ndarray, tensor: str, column: str) -> OccludedRows:
    """Return the first picture with one patch after the other in its mean colour.

    Args:
        pictures: Levels (row, height, width, channel), uint8.
        tensor: The input of the graph.
        column: The column of the picture.
    """
    height, width = pictures.shape[1:3]
    rows, columns = (np.linspace(0, size, min(GRID, size) + 1).astype(int).tolist() for size in (height, width))
    spans = itertools.product(itertools.pairwise(rows), itertools.pairwise(columns))
    boxes = [Box(start, top, end - start, foot - top) for (top, foot), (start, end) in spans]
    mean = np.rint(pictures[0].mean(axis=(0, 1))).astype(np.uint8)
    occluded = np.repeat(pictures[:1], len(boxes) + 1, axis=0)
    for picture, box in zip(occluded[1:], boxes, strict=True):
        picture[box.down : box.down + box.height, box.across : box.across + box.width] = mean
    return OccludedRows(column, boxes, {tensor: occluded})
