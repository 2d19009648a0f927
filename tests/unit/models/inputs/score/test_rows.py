"""Numbers of heavy tails get their normal scores as an input, and the graph gives the same ones."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from models.inputs.graph_builder import GraphBuilder
from models.inputs.nodes import write_nodes
from models.inputs.record import LearntFiles
from models.inputs.score.rows import encode_score, fit_score
from tests.finished_jobs import run_stretch

DRAW = np.random.default_rng(0)
NORMAL = DRAW.normal(size=4000)


@pytest.mark.parametrize(
    ("values", "is_heavy"),
    [
        (NORMAL, False),
        (np.exp(0.5 * NORMAL), False),
        (DRAW.exponential(size=4000), False),
        (np.exp(1.5 * NORMAL), True),
        (-np.exp(2.5 * NORMAL), True),
        (np.where(np.arange(4000) % 3, np.nan, np.exp(2.5 * NORMAL)), True),
        (DRAW.standard_cauchy(4000), True),
        (np.full(100, 3.0), False),
        (np.arange(4000) % 2, False),
        (np.r_[np.zeros(3100), np.exp(2.5 * NORMAL[:900])], False),  # mostly constant: it is not said what is usual
        (np.r_[NORMAL, 1.7e308], True),
    ],
)
def test_a_column_has_a_score_if_its_tails_are_heavy(values, is_heavy):
    assert (fit_score("x", values.astype(float)) is not None) is is_heavy


def test_scores_are_those_of_a_normal_distribution_by_rank():
    part = fit_score("x", np.exp(2.5 * NORMAL))
    within = np.abs(NORMAL) < 2.2
    assert np.abs(encode_score(np.exp(2.5 * NORMAL), part) - NORMAL)[within].max() < 0.15
    low, middle, high = encode_score(np.array([-1e300, np.nan, 1e300]), part)
    assert (low, middle) == (np.float32(part.scores[0]), 0.0)
    assert high == np.float32(NormalDist().inv_cdf(63.5 / 64))


@pytest.mark.parametrize(("decides", "least_gain"), [("ranks", 0.02), ("numbers", -0.01)])
def test_a_linear_model_gains_where_ranks_decide_and_loses_nothing_where_numbers_do(decides, least_gain):
    """ROC AUC on other rows, with the scores of two columns beside their numbers and with the numbers alone."""
    draw, train = np.random.default_rng(1), np.arange(4000) < 2000
    normal = draw.normal(size=(4000, 2))
    values = np.exp(2.5 * normal)
    numbers = (values - values[train].mean(axis=0)) / values[train].std(axis=0)
    scores = [encode_score(column, fit_score("x", column[train])) for column in values.T]
    sum_of_columns = (normal if decides == "ranks" else numbers).sum(axis=1)
    y = draw.random(4000) < 1 / (1 + np.exp(-2 * sum_of_columns))
    with_scores, alone = (
        roc_auc_score(y[~train], LogisticRegression().fit(x[train], y[train]).predict_proba(x[~train])[:, 1])
        for x in (np.column_stack([numbers, *scores]), numbers)
    )
    assert with_scores - alone > least_gain


def test_equal_values_stand_in_the_middle_of_their_rows():
    values = np.r_[np.zeros(500), np.exp(2.5 * NORMAL[:1500])]
    part = fit_score("x", values)
    assert encode_score(np.zeros(1), part)[0] == pytest.approx(NormalDist().inv_cdf(0.125), abs=0.02)
    assert np.diff(part.knots).min() > 0
    assert np.diff(part.scores).min() > 0


NUMBERS = st.floats(allow_infinity=False, width=64, min_value=-1e300, max_value=1e300) | st.just(float("nan"))


@settings(max_examples=20)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_the_graph_gives_the_same_scores(values):
    """Of columns with knots in other numbers, at the knots, between them, beyond them, and of a missing value."""
    parts = [fit_score("a", np.exp(2.5 * NORMAL)), fit_score("b", np.round(np.exp(1.5 * NORMAL)))]
    assert len(parts[0].knots) > len(parts[1].knots)
    columns = {part.of: np.array([*values, *part.knots[:4], part.knots[-1], np.exp(1)]) for part in parts}
    builder = GraphBuilder("core/")
    (output,) = write_nodes(builder, "numeric", parts, LearntFiles())
    (scores,) = run_stretch(builder, columns, [output])
    expected = np.stack([encode_score(columns[part.of], part) for part in parts], axis=1)
    assert scores.dtype == expected.dtype
    np.testing.assert_array_equal(scores, expected)
