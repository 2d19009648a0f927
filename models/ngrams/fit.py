"""Learns the n-gram model of a text column from the training rows, and applies it to all rows.

The features of a text are the scores of linear models of the target over its n-grams (TF-IDF and logistic regression,
or ridge), a few topics (singular vectors), and its length, each cut to its range in the training texts. The scores of
training rows come from models that did not see the row's unit of independence (cross-fitting), so that the net or the
trees behind them learn how far to trust them.

Source: sublinear TF-IDF with one norm for words and one for pieces: measured, docs/decisions/0031. Stacking: Wolpert,
"Stacked generalization", 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from models.folds import Units, rows_apart
from models.ngrams.graph import counts, feature_session
from models.ngrams.model import NgramModel
from models.ngrams.vocabulary import MOST_CHARACTERS, alphabet_of, terms_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

MOST_LEARNT = 20_000
"""Training texts that vocabulary, scores and topics are learnt from, spread evenly over the rows."""
MOST_TOPIC_TEXTS = 10_000
NUM_TOPICS = 16
NUM_FOLDS = 4
MOST_SCORES = 50
"""With more classes or targets, texts have topics alone: a score for each would be too many features."""
INVERSE_PENALTY = 4.0
"""Of more than two classes, of which a fit takes seconds, and where a class is missing without the first fold."""
INVERSE_PENALTIES = (0.25, 1.0, 4.0, 16.0)
"""Of two classes and of numbers: the first fold chooses. Source: measured, docs/decisions/0103."""
_BATCH = 4096


def fit_ngrams(
    texts: Sequence[str],
    target: np.ndarray,
    is_class: bool,
    units: Units | None = None,
    weight: np.ndarray | None = None,
) -> tuple[NgramModel, np.ndarray] | None:
    """Learn from training texts; None if no word or piece of a word occurs in two of them.

    Args:
        texts: Training texts, "" for missing.
        target: Class indices or numbers (text,), or of several targets numbers (text, target).
        is_class: Whether the target is a class.
        units: Of independence; None: each text is one.
        weight: How much each text counts in the scores, float64 >= 0 (text,); None: all alike.

    Returns:
        The model, and the features of these texts, float32 (text, features).

    Cost: about 1 ms for each of `MOST_LEARNT` texts of a hundred words; .1 ms for each further text.
    """
    sampled = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), MOST_LEARNT)).astype(np.int64))
    learnt = [texts[row][:MOST_CHARACTERS] for row in sampled]
    alphabet = alphabet_of(learnt)
    terms, num_words = terms_of(learnt, alphabet)
    if not terms:
        return None
    blank = NgramModel(alphabet, terms, num_words, *(np.zeros(0),) * 6)
    occurring = counts(blank, learnt)
    idf = np.log((1 + len(learnt)) / (1 + np.bincount(occurring.indices, minlength=len(terms)))) + 1
    weighted = weights(occurring, idf, num_words)
    folds = (rows_apart(len(texts)) if units is None else units).folds(NUM_FOLDS)
    own = np.ones(len(sampled)) if weight is None else weight[sampled]
    scores = _scores(weighted, target[sampled], is_class, folds[sampled], own)
    topics = _topics(weighted)
    model, features = _standardised(replace(blank, idf=idf), scores, weighted @ topics, topics, learnt)
    return model, _of_all_texts(model, texts, sampled, features, scores, folds)


def _standardised(
    blank: NgramModel, scores: _Scores, of_topics: np.ndarray, topics: np.ndarray, learnt: Sequence[str]
) -> tuple[NgramModel, np.ndarray]:
    """Return the model, and the features of the texts that it is learnt from (text, features)."""
    columns = np.hstack([scores.out_of_fold, of_topics])
    lengths = np.log1p([len(text) for text in learnt])
    shift, scale = columns.mean(axis=0), _spread(columns)
    length = np.array([lengths.mean(), _spread(lengths)])
    features = np.column_stack([(columns - shift) / scale, (lengths - length[0]) / length[1]])
    map_, intercept = scores.of_all
    model = replace(
        blank,
        projection=(np.hstack([map_, topics]) / scale).astype(np.float32),
        bias=(np.concatenate([intercept, np.zeros(topics.shape[1])]) - shift) / scale,
        length=length,
        low=features.min(axis=0),
        high=features.max(axis=0),
    )
    return model, features


def _of_all_texts(
    model: NgramModel,
    texts: Sequence[str],
    sampled: np.ndarray,
    features: np.ndarray,
    scores: _Scores,
    folds: np.ndarray,
) -> np.ndarray:
    """Return the features of all training texts; the scores come from models that did not see the text's fold.

    Texts that were not learnt from, beyond `MOST_LEARNT`, may share a unit with some that were.
    """
    num = scores.out_of_fold.shape[1]
    features_of_all = ngram_features(model, texts)
    features_of_all[sampled, :num] = features[:, :num]
    other_rows = np.setdiff1d(np.arange(len(texts)), sampled)
    shift, scale = scores.out_of_fold.mean(axis=0), _spread(scores.out_of_fold)
    for fold in np.unique(folds[other_rows]) if num else ():
        rows = other_rows[folds[other_rows] == fold]
        map_, intercept = scores.of_fold[fold]
        projection, bias = model.projection.copy(), model.bias.copy()
        projection[:, :num], bias[:num] = map_ / scale, (intercept - shift) / scale
        of_fold = replace(model, projection=projection, bias=bias)
        features_of_all[rows, :num] = ngram_features(of_fold, [texts[row] for row in rows])[:, :num]
    return features_of_all


def ngram_features(model: NgramModel, texts: Sequence[str]) -> np.ndarray:
    """Return the features of texts, float32 (text, features)."""
    session = feature_session(model)
    parts = [
        session.run(None, {"text": np.array(texts[start : start + _BATCH], object)})[0]
        for start in range(0, len(texts), _BATCH)
    ]
    return np.concatenate([np.zeros((0, model.num_features), np.float32), *parts])


def weights(occurring: csr_matrix, idf: np.ndarray, num_words: int) -> csr_matrix:
    """Return the weights (1 + log count) x idf; words and pieces each have norm 1 in every text."""
    weighted = occurring.copy()
    weighted.data = (1 + np.log(weighted.data)) * idf[weighted.indices]
    is_word = weighted.indices < num_words
    rows = np.repeat(np.arange(weighted.shape[0]), np.diff(weighted.indptr))
    for block in (is_word, ~is_word):
        norms = np.sqrt(np.bincount(rows[block], weighted.data[block] ** 2, weighted.shape[0]))
        weighted.data[block] /= norms[rows[block]]
    return weighted


Linear = tuple[np.ndarray, np.ndarray]
"""Weights (term, score) and intercepts (score,)."""


class _Scores(NamedTuple):
    """The scores of texts by models that did not see their fold (text, score), and the models of each fold and of all.

    A fold without which a class, or every text, is missing has the mean score of the others.
    """

    out_of_fold: np.ndarray
    of_fold: dict[int, Linear]
    of_all: Linear


def _scores(weighted: csr_matrix, target: np.ndarray, is_class: bool, folds: np.ndarray, weight: np.ndarray) -> _Scores:
    counts = weight > 0
    classes = np.unique(target[counts]) if is_class else np.zeros(1)
    num_scores = 1 if target.ndim == 1 else target.shape[1]
    num_scores = len(classes) if len(classes) > 2 else num_scores
    num_texts, num_terms = weighted.shape
    if num_scores > MOST_SCORES or (is_class and len(classes) < 2):
        return _Scores(np.zeros((num_texts, 0)), {}, (np.zeros((num_terms, 0)), np.zeros(0)))
    penalty = _inverse_penalty(weighted, target, is_class, folds == 0, weight)
    out_of_fold, is_scored = np.zeros((num_texts, num_scores)), np.zeros(num_texts, dtype=bool)
    of_fold = {}
    for fold in range(NUM_FOLDS):
        is_left_out, seen = folds == fold, (folds != fold) & counts
        if seen.any() and (not is_class or len(np.unique(target[seen])) == len(classes)):
            of_fold[fold] = map_, bias = _linear(weighted[seen], target[seen], is_class, weight[seen], penalty)
            out_of_fold[is_left_out], is_scored[is_left_out] = weighted[is_left_out] @ map_ + bias, True
    usual = out_of_fold[is_scored].mean(axis=0) if is_scored.any() else np.zeros(num_scores)
    out_of_fold[~is_scored] = usual
    of_fold = {fold: (np.zeros((num_terms, num_scores)), usual) for fold in range(NUM_FOLDS)} | of_fold
    return _Scores(out_of_fold, of_fold, _linear(weighted[counts], target[counts], is_class, weight[counts], penalty))


def _inverse_penalty(
    weighted: csr_matrix, target: np.ndarray, is_class: bool, is_left_out: np.ndarray, weight: np.ndarray
) -> float:
    """Return the inverse penalty with which a model of the other texts has the least loss on those left out."""
    seen, judged = ~is_left_out & (weight > 0), is_left_out & (weight > 0)
    num_classes = [len(np.unique(target[rows])) for rows in (weight > 0, seen)] if is_class else [2, 2]
    if num_classes != [2, 2] or not seen.any() or not judged.any():
        return INVERSE_PENALTY
    losses = []
    for penalty in INVERSE_PENALTIES:
        map_, bias = _linear(weighted[seen], target[seen], is_class, weight[seen], penalty)
        predicted = (weighted[judged] @ map_ + bias).reshape(target[judged].shape)
        loss = np.logaddexp(0, predicted) - (target[judged] == target.max()) * predicted
        loss = loss if is_class else ((predicted - target[judged]) / _spread(target)) ** 2
        losses.append(np.average(loss, axis=0, weights=weight[judged]).sum())
    return INVERSE_PENALTIES[int(np.argmin(losses))]


def _linear(weighted: csr_matrix, target: np.ndarray, is_class: bool, weight: np.ndarray, penalty: float) -> Linear:
    """Return a regularised linear model; `penalty` is the inverse one."""
    from sklearn.linear_model import LogisticRegression, Ridge

    halves = weighted / np.sqrt(2)
    if is_class:
        model = LogisticRegression(C=penalty, max_iter=200).fit(halves, target, weight)
    else:
        model = Ridge(alpha=1 / penalty, random_state=0).fit(halves, target, weight)
    return np.atleast_2d(model.coef_).T / np.sqrt(2), np.atleast_1d(model.intercept_)


def _topics(weighted: csr_matrix) -> np.ndarray:
    """Return the first right singular vectors (term, topic)."""
    from sklearn.decomposition import TruncatedSVD

    num_topics = min(NUM_TOPICS, min(weighted.shape) - 1)
    if num_topics < 1:
        return np.zeros((weighted.shape[1], 0))
    every = -(-weighted.shape[0] // MOST_TOPIC_TEXTS)
    return np.asarray(TruncatedSVD(num_topics, random_state=0).fit(weighted[::every]).components_.T)


def _spread(values: np.ndarray) -> np.ndarray:
    spread = values.std(axis=0)
    return np.where(spread > 1e-9, spread, 1.0)
