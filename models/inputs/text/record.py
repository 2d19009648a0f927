"""A column of texts as an input: its record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field

from models.inputs.record import TextRecord


class TextColumn(TextRecord):
    """A column of texts: its n-grams become features (`models/ngrams`); a missing text is an empty one.

    Its first words are also an input of their own, in their order, for nets that read them.
    """

    PLURAL: ClassVar[str] = "texts"
    IS_SCORED: ClassVar[bool] = True
    kind: Literal["text"] = "text"
    num_terms: int = Field(description="Words, pairs of words and pieces of words in the vocabulary.")
    num_features: int
    length: int = Field(0, description="Words that such a net reads; 0 before there were any.")
    words: list[str] = Field(default_factory=list, repr=False, description="Those it knows, in the order of their ids.")
    stems: list[str] = Field(default_factory=list, repr=False, description="Known beginnings of words, in this order.")

    @property
    def width(self) -> int:
        """The features of its n-grams."""
        return self.num_features

    @property
    def summary(self) -> str:
        """The size of its vocabulary, and what becomes of it."""
        words = f", the first {self.length} words" if self.length else ""
        return f"{self.num_terms:,} n-grams, {self.num_features} features{words}"


def word_offsets(parts: Iterable[TextColumn]) -> list[tuple[int, int]]:
    """Return by how much the indices of each text column's words and stems are moved: it has its own."""
    offsets, words, stems = [], 0, 0
    for part in parts:
        offsets.append((words, stems))
        words, stems = words + len(part.words), stems + len(part.stems)
    return offsets
