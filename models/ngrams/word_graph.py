"""The ids of the words of texts as ONNX nodes. Training runs the same nodes, so both read the same words.

ONNX cannot look up a variable number of characters. So a word becomes one number, the sum of its characters' codes
times a random factor for each place, and that number is looked up. Two of 50,000 words share a number with a
probability below 1e-5 (codes of 1,000 characters), and would then share an id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from models.ngrams.graph import ML_DOMAIN, Nodes, character_codes, text_loop, text_session
from models.ngrams.model import NgramModel
from models.ngrams.vocabulary import LONGEST_TERM, SPACE
from models.ngrams.words import NO_WORD, STEM_LENGTH, UNKNOWN_WORD, is_without_spaces, word_index

FEWEST_WORDS, MOST_WORDS = 8, 64
MOST_MEASURED = 2000
_WIDTH = LONGEST_TERM - 1
"""Characters of a word that are read: those of the longest term without its spaces, and one more of a longer word."""
_BATCH = 4096


def word_nodes(
    model: NgramModel, column: str, length: int, output: str, prefix: str, word_offset: int = 0, stem_offset: int = 0
) -> tuple[list[Any], list[Any]]:
    """Return the nodes and the constants that turn texts `column` (batch,) into `output`, int64 (batch, length, 2).

    Args:
        model: The n-gram model of the column.
        column: Name of the texts.
        length: Words of a text that are read.
        output: Name of the ids: of a word and of its stem; 0 after the last word.
        prefix: Begins the names of all nodes and constants.
        word_offset: Added to the ids of known words, for columns that share an embedding.
        stem_offset: Added to the ids of known stems, in the same way.
    """

    def ids(nodes: Nodes, text: str) -> str:
        return _ids(nodes, model, text, length, word_offset, stem_offset)

    return text_loop(column, output, prefix, ids, onnx.TensorProto.INT64, [length, 2])


def word_ids(
    model: NgramModel, texts: Sequence[str], length: int, word_offset: int = 0, stem_offset: int = 0
) -> np.ndarray:
    """Return what `word_nodes` make of texts, int32 (text, length, 2)."""
    nodes = word_nodes(model, "text", length, "words", "w/", word_offset, stem_offset)
    session = text_session(*nodes, "words", onnx.TensorProto.INT64)
    parts = [
        session.run(None, {"text": np.array(texts[start : start + _BATCH], object)})[0].astype(np.int32)
        for start in range(0, len(texts), _BATCH)
    ]
    return np.concatenate([np.zeros((0, length, 2), np.int32), *parts])


def usual_length(model: NgramModel, texts: Sequence[str]) -> int:
    """Return the 95th percentile of the number of words, at least `FEWEST_WORDS` and at most `MOST_WORDS`.

    It is that of at most `MOST_MEASURED` texts, spread evenly.
    """
    sampled = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), MOST_MEASURED)).astype(np.int64))
    ids = word_ids(model, [texts[row] for row in sampled], MOST_WORDS)
    num_words = (ids[:, :, 0] != NO_WORD).sum(axis=1)
    return max(FEWEST_WORDS, int(np.quantile(num_words, 0.95, method="inverted_cdf"))) if texts else FEWEST_WORDS


def _ids(nodes: Nodes, model: NgramModel, text: str, length: int, word_offset: int, stem_offset: int) -> str:
    """Return the ids of the words of one text (1,) and of their stems, int64 (length, 2)."""
    zero, unit = (nodes.constant(np.array([number])) for number in (0, 1))
    read = nodes("Squeeze", character_codes(nodes, model, text), zero)
    codes = nodes("Concat", read, nodes.constant(np.full(_WIDTH, SPACE)), axis=0)
    starts, sizes = _words(nodes, model, codes, length)
    place = nodes.constant(np.arange(_WIDTH))
    column = nodes("Unsqueeze", sizes, unit)
    characters = nodes("Gather", nodes("Add", codes, unit), nodes("Add", nodes("Unsqueeze", starts, unit), place))
    inside = nodes("Cast", nodes("Less", place, column), to=onnx.TensorProto.INT64)
    factors = _factors(len(model.codes))
    keys = nodes("MatMul", nodes("Mul", characters, inside), nodes.constant(factors))
    has_both = nodes("Greater", column, nodes.constant(np.array([[0, STEM_LENGTH]])))
    table = _table(model, factors, word_offset, stem_offset)
    ids = nodes(
        "LabelEncoder",
        nodes("Where", has_both, keys, zero),
        domain=ML_DOMAIN,
        keys_int64s=list(table),
        values_int64s=list(table.values()),
        default_int64=UNKNOWN_WORD,
    )
    missing = nodes("Sub", nodes.constant(np.array([length])), nodes("Shape", starts))
    return nodes("Pad", ids, nodes("Concat", zero, zero, missing, zero, axis=0))


def _words(nodes: Nodes, model: NgramModel, codes: str, length: int) -> tuple[str, str]:
    """Return where the first words start and how many characters they have, both int64 (words,)."""
    zero, unit, minus_one, length_limit = (nodes.constant(np.array([number])) for number in (0, 1, -1, length))
    is_dense = np.zeros(len(model.codes) + 1, bool)
    is_dense[[code for form, code in model.codes.items() if is_without_spaces(form)]] = True
    dense = nodes("Gather", nodes.constant(is_dense), codes)
    space = nodes("Equal", codes, nodes.constant(np.array(SPACE)))
    is_break = nodes("Or", dense, space)
    before = nodes("Concat", nodes.constant(np.array([True])), is_break, axis=0)
    after_break = nodes("Slice", before, zero, minus_one)
    is_start = nodes("And", nodes("Not", space), nodes("Or", dense, after_break))
    starts = nodes("Slice", nodes("Squeeze", nodes("NonZero", is_start), zero), zero, length_limit)
    breaks = nodes("Squeeze", nodes("NonZero", is_break), zero)
    num_breaks = nodes("CumSum", nodes("Cast", is_break, to=onnx.TensorProto.INT64), nodes.constant(np.array(0)))
    next_break = nodes("Gather", breaks, nodes("Gather", num_breaks, starts))
    next_dense = nodes("Cast", nodes("Gather", dense, nodes("Add", starts, unit)), to=onnx.TensorProto.INT64)
    sizes = nodes(
        "Where", nodes("Gather", dense, starts), nodes("Add", next_dense, unit), nodes("Sub", next_break, starts)
    )
    return starts, sizes


def _factors(num_codes: int) -> np.ndarray:
    """Return the factor of each place, for words and for stems, int64 (place, 2), so that no sum leaves int64."""
    bound = (2**63 - 1) // (_WIDTH * (num_codes + 1))
    factors = np.random.default_rng(0).integers(1, bound, (_WIDTH, 2))
    factors[STEM_LENGTH:, 1] = 0
    return factors


def _table(model: NgramModel, factors: np.ndarray, word_offset: int, stem_offset: int) -> dict[int, int]:
    """Return the ids by the sums of the known words and stems."""
    index = word_index(model)
    table = {0: UNKNOWN_WORD}
    for column, ids, offset in ((0, index.words, word_offset), (1, index.stems, stem_offset)):
        factor = factors[:, column].tolist()
        for word, number in ids.items():
            key = sum(factor[index] * (model.codes[character] + 1) for index, character in enumerate(word))
            table[key] = number + offset
    return table
