"""The words and stems of a vocabulary have ids."""

import numpy as np

from models.ngrams.model import NgramModel
from models.ngrams.words import WordIndex, word_index


def test_single_words_pairs_of_dense_characters_and_stems_are_numbered_from_two():
    words = [" york ", " new york ", " yorkshire ", " 很好 ", " 很好看 ", " 好 ", " a好 ", " yorks "]
    pieces = ["yor", "很好", "好看", "好看的", "a看", " 看", "ไท"]
    model = NgramModel({}, [*words, *pieces], len(words), *(np.zeros(0),) * 6)
    assert word_index(model) == WordIndex(
        words={"york": 2, "yorkshire": 3, "很好": 4, "好": 5, "yorks": 6, "好看": 7, "ไท": 8}, stems={"york": 2}
    )
    assert [*word_index(model).words] == ["york", "yorkshire", "很好", "好", "yorks", "好看", "ไท"]
