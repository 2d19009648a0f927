"""The n-gram model of a text column: its vocabulary, and the linear map from weighted counts to features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from models.errors import StoreError
from models.files import whole_file
from models.ngrams.vocabulary import FIRST_CODE, SPACE

NGRAMS_FILE = "ngrams.safetensors"
_ARRAYS = ("idf", "projection", "bias", "length", "low", "high")


@dataclass(frozen=True, eq=False)
class NgramModel:
    """What turns a text into numbers; `models/ngrams/graph.py` computes them.

    Attributes:
        alphabet: The folded form of each known character.
        terms: Words and pairs of words first, then pieces of words.
        num_words: How many of the terms are words or pairs.
        idf: Inverse document frequency of each term, float64 (term,).
        projection: Linear map of the normalised weights, float32 (term, features - 1).
        bias: Added to the projection, float64 (features - 1,).
        length: Shift and scale of log(1 + number of characters), the last feature, float64 (2,).
        low: The least value of each feature in the training texts, float64 (features,); lower ones are cut to it, so
            that no model extrapolates.
        high: The greatest value, in the same way.
    """

    alphabet: Mapping[str, str]
    terms: list[str]
    num_words: int
    idf: np.ndarray
    projection: np.ndarray
    bias: np.ndarray
    length: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __eq__(self, other_model: object) -> bool:
        if not isinstance(other_model, NgramModel):
            return NotImplemented
        same = (self.alphabet, self.terms, self.num_words) == (
            other_model.alphabet,
            other_model.terms,
            other_model.num_words,
        )
        return same and all(np.array_equal(getattr(self, name), getattr(other_model, name)) for name in _ARRAYS)

    __hash__ = None  # type: ignore[assignment]

    @property
    def num_features(self) -> int:
        """Number of features of a text."""
        return len(self.bias) + 1

    @cached_property
    def codes(self) -> dict[str, int]:
        """The number of each folded character."""
        forms = sorted({*self.alphabet.values()} - {" "})
        return {" ": SPACE, **{form: number for number, form in enumerate(forms, FIRST_CODE)}}


def save_ngrams(models: Mapping[str, NgramModel], folder: Path) -> None:
    """Write the models of some columns into a folder, as one safetensors file; none for no columns."""
    from safetensors.numpy import save_file

    if not models:
        return
    arrays = {
        f"{position}.{field}": getattr(model, field)
        for position, model in enumerate(models.values())
        for field in _ARRAYS
    }
    vocabularies = [
        {"column": name, "alphabet": dict(model.alphabet), "terms": model.terms, "num_words": model.num_words}
        for name, model in models.items()
    ]
    with whole_file(folder / NGRAMS_FILE) as path:
        save_file(arrays, path, metadata={"columns": json.dumps(vocabularies)})


def load_ngrams(folder: Path) -> dict[str, NgramModel]:
    """Return the models of a folder by column; empty where there are none.

    Raises:
        StoreError: The file cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / NGRAMS_FILE
    if not path.exists():
        return {}
    try:
        with safe_open(path, framework="numpy") as file:
            columns = json.loads(file.metadata()["columns"])
            arrays = [
                {name: file.get_tensor(f"{position}.{name}") for name in _ARRAYS} for position in range(len(columns))
            ]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({type(error).__name__}): remove {folder} and run again") from error
    return {
        column.pop("column"): NgramModel(**column, **arrays_of_model)
        for column, arrays_of_model in zip(columns, arrays, strict=True)
    }
