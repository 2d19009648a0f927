"""Words, pairs of words and pieces of words."""

from models.ngrams.vocabulary import alphabet_of, folded, terms_of


def test_words_pairs_and_pieces_are_terms_and_case_and_punctuation_are_none():
    terms, num_words = terms_of(["New York, NEW YORK!", "new york"], alphabet_of(["New York"]))
    assert {" new ", " york ", " new york "} <= set(terms[:num_words])
    assert {"yor", " ne"} <= set(terms[num_words:])
    assert [folded(character) for character in "ÄａⅣ,é\n😀"] == ["ä", "a", "i", " ", "é", " ", "😀"]
