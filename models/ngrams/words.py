"""The words of a text as numbers: the ids of known words and of their stems.

Letters between separators are a word. In scripts without spaces, each character and the one after it are a word
(bigrams, as in Lucene's CJKAnalyzer); the last one before something else is a word by itself.
`models/ngrams/word_graph.py` finds the words of a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.ngrams.model import NgramModel
from models.ngrams.vocabulary import WITHOUT_SPACES

NO_WORD, UNKNOWN_WORD, FIRST_WORD = 0, 1, 2
"""The ids after the last word and of a word that is not known; the first id of a known one."""
STEM_LENGTH = 4
_WORD = re.compile(f"[{WITHOUT_SPACES}]{{1,2}}|[^ {WITHOUT_SPACES}]+")
_PAIR = re.compile(f"[{WITHOUT_SPACES}]{{2}}")


@dataclass(frozen=True)
class WordIndex:
    """The ids of the words and stems of an n-gram model; all follow from its terms.

    Attributes:
        words: Id of each known word, from `FIRST_WORD` on: the terms that are one word, then the pairs of characters
            of scripts without spaces.
        stems: Id of the first `STEM_LENGTH` characters of each longer word, from `FIRST_WORD` on.
    """

    words: dict[str, int]
    stems: dict[str, int]


def word_index(model: NgramModel) -> WordIndex:
    """Return the ids of the words and stems of a model."""
    whole = [term[1:-1] for term in model.terms[: model.num_words] if _WORD.fullmatch(term[1:-1])]
    pairs = [term for term in model.terms[model.num_words :] if _PAIR.fullmatch(term)]
    words = dict.fromkeys([*whole, *pairs])
    stems = dict.fromkeys(word[:STEM_LENGTH] for word in words if len(word) > STEM_LENGTH)
    return WordIndex(_numbered(words), _numbered(stems))


def is_without_spaces(character: str) -> bool:
    """Return True for a character of a script that does not separate words."""
    return re.fullmatch(f"[{WITHOUT_SPACES}]", character) is not None


def _numbered(texts: dict[str, None]) -> dict[str, int]:
    return {text: number for number, text in enumerate(texts, FIRST_WORD)}
