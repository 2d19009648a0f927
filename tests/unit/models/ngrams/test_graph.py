"""The graph counts what a plain search counts, text by text."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.ngrams.fit import ngram_features
from models.ngrams.graph import counts, feature_session
from models.ngrams.vocabulary import MOST_CHARACTERS
from tests.unit.models.ngrams.conftest import plainly_folded


@given(st.lists(st.text("goöd bafilm Ü!很好1\n\0😀", max_size=40), min_size=1, max_size=3))
def test_terms_are_counted_as_a_plain_search_counts_them(learnt, texts):
    model = learnt[0]
    found = counts(model, texts).toarray()
    for row, text in enumerate(texts):
        plain = re.sub(" +", " ", plainly_folded(model, text))
        expected = [sum(plain.startswith(term, at) for at in range(len(plain))) for term in model.terms]
        assert found[row].tolist() == expected


def test_a_text_has_the_same_features_alone_and_among_others(learnt):
    session = feature_session(learnt[0])
    texts = ["", "good", "A GOOD   film!!", "good " * 5000, "\0", "new words only here"]
    together = ngram_features(learnt[0], texts)
    assert np.isfinite(together).all()
    for at, text in enumerate(texts):
        np.testing.assert_array_equal(session.run(None, {"text": np.array([text], object)})[0][0], together[at])
    assert (together[3] == ngram_features(learnt[0], ["good " * (MOST_CHARACTERS // 5) + "bad"])[0]).all()
    assert ngram_features(learnt[0], []).shape == (0, learnt[0].num_features)
