"""The n-grams of texts: the graph counts what a plain search counts, and the features learn what the words say."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.encode import encode
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.errors import DataError
from models.ngrams.columns import feature_column, feature_matrix, holds_texts
from models.ngrams.fit import fit_ngrams, ngram_features
from models.ngrams.graph import counts, feature_session
from models.ngrams.model import NgramModel, load_ngrams, save_ngrams
from models.ngrams.vocabulary import MOST_CHARACTERS, alphabet_of, folded, terms_of

WORDS = ["good", "bad", "film", "Über", "naïve", "x1", "don't", "很好", "ok"]
TEXTS = [" ".join(np.random.default_rng(row).choice(WORDS, 5)) + "!" * (row % 3) for row in range(80)]
LABELS = np.array(["good" in text for text in TEXTS]).astype(np.int64)


@pytest.fixture(scope="module")
def learnt() -> tuple[NgramModel, np.ndarray]:
    result = fit_ngrams(TEXTS, LABELS, is_class=True)
    assert result is not None
    return result


@given(st.lists(st.text("goöd bafilm Ü!很好1\n\0😀", max_size=40), min_size=1, max_size=3))
def test_terms_are_counted_as_a_plain_search_counts_them(learnt, texts):
    model = learnt[0]
    table = {ord(character): form for character, form in model.alphabet.items()}
    found = counts(model, texts).toarray()
    for row, text in enumerate(texts):
        unknown = "".join(character if ord(character) in table else "\1" for character in text).translate(table)
        plain = re.sub(" +", " ", f" {unknown} ")
        expected = [sum(plain.startswith(term, at) for at in range(len(plain))) for term in model.terms]
        assert found[row].tolist() == expected


def test_words_pairs_and_pieces_are_terms_and_case_and_punctuation_are_none():
    terms, num_words = terms_of(["New York, NEW YORK!", "new york"], alphabet_of(["New York"]))
    assert {" new ", " york ", " new york "} <= set(terms[:num_words])
    assert {"yor", " ne"} <= set(terms[num_words:])
    assert [folded(character) for character in "ÄａⅣ,é\n😀"] == ["ä", "a", "i", " ", "é", " ", "😀"]


def test_a_text_has_the_same_features_alone_and_among_others(learnt):
    session = feature_session(learnt[0])
    texts = ["", "good", "A GOOD   film!!", "good " * 5000, "\0", "new words only here"]
    together = ngram_features(learnt[0], texts)
    assert np.isfinite(together).all()
    for at, text in enumerate(texts):
        np.testing.assert_array_equal(session.run(None, {"text": np.array([text], object)})[0][0], together[at])
    assert (together[3] == ngram_features(learnt[0], ["good " * (MOST_CHARACTERS // 5) + "bad"])[0]).all()
    assert ngram_features(learnt[0], []).shape == (0, learnt[0].num_features)


def test_scores_of_training_texts_come_from_models_that_did_not_see_them():
    """A model of its own rows tells random labels; one of other rows cannot."""
    labels = np.random.default_rng(0).integers(0, 2, 400)
    texts = [f"word{row} word{row} this is text {row % 7}" for row in range(200)] * 2
    model, features = fit_ngrams(texts, labels, is_class=True)
    own = ngram_features(model, texts)[:, 0]
    assert np.corrcoef(own, labels)[0, 1] > 0.4
    assert abs(np.corrcoef(features[:, 0], labels)[0, 1]) < 0.15


@pytest.mark.parametrize("is_class", [True, False])
def test_the_score_says_what_the_words_say(is_class):
    model, features = fit_ngrams(TEXTS, LABELS.astype(float) if not is_class else LABELS, is_class)
    assert np.corrcoef(features[:, 0], LABELS)[0, 1] > 0.7
    score = ngram_features(model, ["good", "bad film"])[:, 0]
    assert score[0] > score[1]


def test_three_classes_have_a_score_each_and_a_class_of_one_row_does_not_stop_it():
    classes = np.arange(80) % 2
    classes[5] = 2
    model, features = fit_ngrams(TEXTS, classes, is_class=True)
    assert features.shape == (80, model.num_features)
    assert np.isfinite(features).all()
    assert fit_ngrams(["a", "b"], np.array([0, 1]), is_class=True) is None


def test_a_model_is_stored_and_loaded_unchanged(learnt, tmp_path):
    save_ngrams({"ñ/1": learnt[0]}, tmp_path)
    assert load_ngrams(tmp_path) == {"ñ/1": learnt[0]}
    assert load_ngrams(tmp_path / "absent") == {}


def test_sentences_are_texts_and_names_codes_and_categories_are_none():
    def is_text(*values: str) -> bool:
        return holds_texts(pa.chunked_array([[value.format(row) for row in range(60) for value in values]]))

    assert is_text("the film number {} was good")
    assert is_text("这是第{}部很好看的电影我很喜欢")
    assert not is_text("user-{}")
    assert not is_text("a b c d")
    assert not is_text("https://example.com/{}/a-long-path-of-one-word")
    assert not holds_texts(pa.chunked_array([["a text of words"]]))


def test_features_of_rows_survive_filters_and_chunks():
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = pa.chunked_array([feature_column(features[:2]), feature_column(features[2:])])
    assert (feature_matrix(column, 3) == features).all()
    kept = column.filter(pa.array([False, True, True, False]))
    assert (feature_matrix(kept, 3) == features[1:3]).all()


def test_a_column_of_texts_is_an_input_of_a_table(make_spec, tmp_path):
    table = pa.table({"note": [*TEXTS[:-1], None], "x": np.arange(80.0), "y": LABELS})
    rows, preparation = prepare_table(table, make_spec(), tmp_path)
    assert [part.name for part in preparation.texts] == ["note"]
    write_rows(rows, preparation, tmp_path)
    assert Preparation.load(tmp_path) == preparation
    numeric = encode(tmp_path, "test")["numeric"]
    assert numeric.shape == (preparation.rows["test"], 1 + preparation.texts[0].num_features)


def test_what_is_no_text_cannot_be_declared_one(make_spec, tmp_path):
    table = pa.table({"note": np.arange(80), "y": LABELS})
    with pytest.raises(DataError, match=r"'note' is named, but its type is int64, no text"):
        prepare_table(table, make_spec(features={"kinds": {"note": "text"}}), tmp_path)
