"""The features say what the words say, and those of training rows come from models that did not see them."""

import numpy as np
import pytest

from models.folds import Units
from models.ngrams import fit
from models.ngrams.fit import fit_ngrams, ngram_features
from tests.unit.models.ngrams.conftest import LABELS, TEXTS, WORDS


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


def test_a_text_unlike_all_training_texts_is_judged_by_its_words():
    """A linear model must not extrapolate: the length of one word lies eight deviations below the training texts'."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    labels = np.arange(400) % 2
    texts = [
        " ".join(["parcel driver" if label else "invoice refund", *random.choice(WORDS, 24 + label + row % 3)])
        for row, label in enumerate(labels)
    ]
    labels = np.where(random.random(400) < 0.1, 1 - labels, labels)
    model, features = fit_ngrams(texts, labels, is_class=True)
    linear = LogisticRegression(max_iter=2000).fit(features, labels)
    unlike = ngram_features(model, ["parcel driver", "parcel", "", "invoice refund " * 300])
    assert linear.predict_proba(unlike)[:2, 1].min() > 0.5
    assert (unlike >= features.min(axis=0) - 1e-5).all()
    assert (unlike <= features.max(axis=0) + 1e-5).all()


def test_a_null_character_separates_words_as_a_space_does():
    nulls = [text.replace(" ", "\0") for text in TEXTS]
    model, features = fit_ngrams(nulls, LABELS, is_class=True)
    assert (features == fit_ngrams(TEXTS, LABELS, is_class=True)[1]).all()
    assert (ngram_features(model, ["good\0film"]) == ngram_features(model, ["good film"])).all()


def test_several_targets_have_a_score_each():
    targets = np.stack([100.0 + 5 * LABELS, -LABELS.astype(float)], axis=1)
    model, features = fit_ngrams(TEXTS, targets, is_class=False)
    assert features.shape == (len(TEXTS), model.num_features)
    good, bad = ngram_features(model, ["good", "bad film"])
    assert good[0] > bad[0]
    assert good[1] < bad[1]


@pytest.mark.parametrize("in_order", [False, True])
def test_scores_come_from_models_that_did_not_see_the_unit(in_order):
    """The texts of a unit share words and the label: by rows the score is the label, by units it knows nothing."""
    random = np.random.default_rng(0)
    units = np.repeat(np.arange(60), 5)
    labels = random.integers(0, 2, 60)[units]
    texts = [f"unit{unit} again{unit} text {random.integers(9)}" for unit in units]
    by_rows = fit_ngrams(texts, labels, is_class=True)[1]
    by_units = fit_ngrams(texts, labels, is_class=True, units=Units(units, in_order))[1]
    assert np.corrcoef(by_rows[:, 0], labels)[0, 1] > 0.9
    assert np.corrcoef(by_units[:, 0], labels)[0, 1] < 0.3


def test_a_text_beyond_those_that_are_learnt_has_no_score_of_its_unit(monkeypatch):
    monkeypatch.setattr(fit, "MOST_LEARNT", 150)
    random = np.random.default_rng(0)
    units = np.repeat(np.arange(60), 5)
    labels = random.integers(0, 2, 60)[units]
    texts = [f"unit{unit} again{unit} text {random.integers(9)}" for unit in units]
    model, features = fit_ngrams(texts, labels, is_class=True, units=Units(units))
    assert np.corrcoef(ngram_features(model, texts)[:, 0], labels)[0, 1] > 0.9
    assert np.corrcoef(features[:, 0], labels)[0, 1] < 0.3


def test_texts_of_one_unit_have_no_score_of_their_own():
    features = fit_ngrams(TEXTS, LABELS, is_class=True, units=Units(np.zeros(len(TEXTS))))[1]
    assert np.ptp(features[:, 0]) == 0
    assert np.isfinite(features).all()


@pytest.mark.parametrize("is_class", [True, False])
def test_a_text_of_weight_0_teaches_no_score(is_class):
    """Half of the texts have the opposite label, and no weight."""
    texts, weight = [*TEXTS, *TEXTS], np.repeat([2.0, 0.0], len(TEXTS))
    labels = np.concatenate([LABELS, 1 - LABELS])
    features = fit_ngrams(texts, labels if is_class else labels.astype(float), is_class, weight=weight)[1]
    assert np.corrcoef(features[: len(TEXTS), 0], LABELS)[0, 1] > 0.7


def test_a_left_out_fold_chooses_how_far_a_number_is_told_from_words(monkeypatch):
    """Of three hundred texts of random words a loose model knows the training rows by heart."""
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(WORDS, 12)) + f" rare{row // 2}" for row in range(900)]
    amounts = np.array([text.count(WORDS[0]) + random.normal(0, 2) for text in texts])
    correlations = []
    for penalties in (fit.INVERSE_PENALTIES, (16.0,)):
        monkeypatch.setattr(fit, "INVERSE_PENALTIES", penalties)
        model, _ = fit_ngrams(texts[:300], amounts[:300], is_class=False)
        correlations.append(np.corrcoef(ngram_features(model, texts[300:])[:, 0], amounts[300:])[0, 1])
    assert correlations[0] > correlations[1] + 0.03
