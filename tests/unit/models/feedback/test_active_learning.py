"""What is asked: the uncertain, not the same thing fifty times; for a regression, what is far from what is known."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.feedback.active_learning import choose_novel, choose_uncertain, positions, uncertainty
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.record import NumericInput
from models.inputs.text.record import TextColumn


def test_uncertainty_is_one_less_the_margin():
    chances = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.5, 0.3]])
    assert uncertainty(chances) == pytest.approx([1.0, 0.0, 0.8])
    assert uncertainty(np.zeros((0, 3))).tolist() == []


def test_near_duplicates_are_asked_once():
    rng = np.random.default_rng(1)
    crowd = rng.normal(scale=0.01, size=(40, 2))
    others = np.array([[10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    points = np.concatenate([crowd, others])
    uncertain = np.concatenate([np.full(40, 0.99), np.full(3, 0.9)])
    chosen = choose_uncertain(uncertain, points, 4)
    assert len(set(chosen.tolist())) == 4
    assert {40, 41, 42} <= set(chosen.tolist())
    assert chosen[0] < 40  # the most uncertain first


def test_the_certain_are_not_asked_where_there_are_enough_others():
    rng = np.random.default_rng(2)
    points = rng.normal(size=(1000, 3))
    uncertain = np.linspace(0, 1, 1000)
    assert choose_uncertain(uncertain, points, 20).min() >= 800


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=30))
def test_different_rows_come_back_and_no_more_than_there_are(count, drawn):
    points = np.array([[one] for one, _ in drawn], dtype=np.float64).reshape(-1, 1)
    uncertain = np.array([value for _, value in drawn])
    chosen = choose_uncertain(uncertain, points, count)
    assert len(chosen) == min(count, len({one for one, _ in drawn}))
    assert len({float(points[one, 0]) for one in chosen}) == len(chosen)


def test_the_novel_are_far_from_the_known_and_from_each_other():
    known, values = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    points = np.array([[0.1], [5.0], [5.1], [-4.0], [1.0]])
    predicted = np.array([0.1, 5.0, 5.1, -4.0, 1.0])
    assert choose_novel(points, predicted, known, values, 2).tolist() == [2, 3]
    assert 4 not in choose_novel(points, predicted, known, values, 5).tolist()  # known already


def test_without_any_label_the_novel_are_spread():
    points = np.array([[0.0], [0.1], [9.0]])
    chosen = choose_novel(points, points[:, 0], np.zeros((0, 1)), np.zeros(0), 2)
    assert chosen.tolist() == [0, 2]


def test_rows_are_points_in_which_a_category_weighs_as_a_standard_deviation():
    preparation = Preparation(
        kind="table",
        task="regression",
        target=TargetEncoding(name="y"),
        inputs=[
            NumericInput(name="x", fill=10.0, shift=10.0, scale=2.0),
            CategoricalInput(name="c", categories=["u", "v"]),
        ],
    )
    rows = pa.table({"input.x": [10.0, 12.0, float("nan")], "input.c": ["u", "u", "v"]})
    points = positions(rows, preparation, "input.")
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(1.0)
    assert np.linalg.norm(points[0] - points[2]) == pytest.approx(1.0)


def test_texts_are_points_by_their_words():
    preparation = Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="y", classes=["n", "p"]),
        inputs=[TextColumn(name="t", num_terms=9, num_features=3)],
    )
    words = np.random.default_rng(0).integers(0, 400, (200, 60))
    texts = [" ".join(f"word{number}" for number in row) for row in words]
    rows = pa.table({"t": [*texts, texts[0].upper(), "", None]})
    points = positions(rows, preparation)
    assert points[200].tolist() == points[0].tolist()
    assert points[202].tolist() == points[201].tolist()
    apart = np.linalg.norm(points[:100] - points[100:200], axis=1)
    assert apart.mean() == pytest.approx(1.0, abs=0.1)
    assert len(choose_uncertain(np.ones(203), points, 50)) == 50
