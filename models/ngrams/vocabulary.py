"""The vocabulary of a text column: words, pairs of words, and pieces of words, learnt from training texts.

All of them are strings over one alphabet of folded characters, in which one space stands for whatever separates words.
So `" new york "` (two words), `" york "` (a word) and `"yor"` (a piece) are found in a text by one search, character by
character, which works for every script, with or without spaces between words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

MOST_CHARACTERS = 5000
"""Characters of a text that are read; the rest is cut off."""
MOST_WORD_TERMS, MOST_PIECES = 20_000, 30_000
PIECE_LENGTHS = range(2, 6)
FEWEST_TEXTS = 2
LONGEST_TERM = 40
MOST_PIECE_CHARACTERS = 2_000_000
"""Characters of different words, most frequent first, of which the pieces are counted."""
UNKNOWN, SPACE, FIRST_CODE = 0, 1, 2
WITHOUT_SPACES = "\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Scripts that do not separate words: Japanese, Chinese, Thai, Lao, Burmese, Khmer; inside the brackets of a regex."""
_LETTERS = "LNMS"
_PLANES = (range(0x20, 0x250), range(0x2000, 0x2070), range(0x3000, 0x3040), range(0xFF00, 0xFFF0))
"""Letters and punctuation that count as known even if no training text has them."""


def folded(character: str) -> str:
    """Return a character as the vocabulary has it: lower case, compatibility forms as one; a space for punctuation."""
    plain = unicodedata.normalize("NFKC", character).lower()[:1]
    return plain if plain and unicodedata.category(plain)[0] in _LETTERS else " "


def alphabet_of(texts: Iterable[str]) -> dict[str, str]:
    """Return the folded form of each character of some texts, and of the usual Latin ones and punctuation."""
    characters = {chr(point) for plane in _PLANES for point in plane}.union(*texts)
    return {character: folded(character) for character in sorted(characters)}


def terms_of(texts: Sequence[str], alphabet: dict[str, str]) -> tuple[list[str], int]:
    """Return the terms in most texts, at least in two: words and pairs first, then pieces; and how many are no pieces.

    Cost: one pass over the texts, and one over the different words, most frequent first, up to
    `MOST_PIECE_CHARACTERS`.
    """
    table = {ord(character): form for character, form in alphabet.items()}
    words: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for text in texts:
        tokens = re.findall(r"[^ ]+", text[:MOST_CHARACTERS].translate(table))
        words.update({f" {token} " for token in tokens})
        pairs.update({f" {first} {second} " for first, second in pairwise(tokens)})
    whole = _most_frequent(words + pairs, MOST_WORD_TERMS)
    whole_words = set(whole)
    pieces = Counter({piece: count for piece, count in _pieces(words).items() if piece not in whole_words})
    return [*whole, *_most_frequent(pieces, MOST_PIECES)], len(whole)


def _pieces(words: Counter[str]) -> Counter[str]:
    pieces: Counter[str] = Counter()
    num_left = MOST_PIECE_CHARACTERS
    for word, count in sorted(words.items(), key=lambda pair: (-pair[1], pair[0])):
        num_left -= len(word)
        if num_left < 0:
            break
        for piece in {
            word[start : start + length] for length in PIECE_LENGTHS for start in range(len(word) - length + 1)
        }:
            pieces[piece] += count
    return pieces


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    frequent = [(-count, term) for term, count in counts.items() if count >= FEWEST_TEXTS and len(term) <= LONGEST_TERM]
    return [term for _, term in sorted(frequent)[:limit]]
