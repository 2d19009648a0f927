"""One small n-gram model for all tests of this folder."""

import numpy as np
import pytest

from models.ngrams.fit import fit_ngrams
from models.ngrams.model import NgramModel

WORDS = ["good", "bad", "film", "Über", "naïve", "x1", "don't", "很好", "ok"]
TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS, 5)) + "!" * (row % 3) for row in range(80)]
LABELS = np.array(["good" in text for text in TEXTS]).astype(np.int64)


@pytest.fixture(scope="module")
def learnt() -> tuple[NgramModel, np.ndarray]:
    result = fit_ngrams(TEXTS, LABELS, is_class=True)
    assert result is not None
    return result


def plainly_folded(model: NgramModel, text: str) -> str:
    """Return the text in the alphabet of the model, in spaces; a character that is not in it becomes one of no term."""
    return "".join([model.alphabet.get(character, "\1") for character in f" {text} "])
