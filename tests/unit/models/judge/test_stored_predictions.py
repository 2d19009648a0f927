"""Stored predictions are found again by their rows, and by nothing else."""

import numpy as np
import pytest

from models.judge.stored_predictions import StoredPredictions

STORED = StoredPredictions(
    "digest", np.array([9, 3, 5], dtype=np.uint64), np.array([1, 0, 1]), np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]])
)


def test_they_are_the_same_after_a_file(tmp_path):
    STORED.save(tmp_path / "predictions.npz")
    again = StoredPredictions.load(tmp_path / "predictions.npz")
    assert again.prepared == "digest"
    assert all(np.array_equal(one, other) for one, other in zip(again[1:], STORED[1:], strict=True))
    assert StoredPredictions.load(tmp_path / "none.npz") is None


def test_rows_in_another_order_have_their_own_and_new_rows_have_none():
    prediction, there = STORED.on(np.array([5, 4, 9, 11], dtype=np.uint64), np.array([1, 0, 1, 0]))
    assert there.tolist() == [True, False, True, False]
    assert prediction[there].tolist() == [[0.5, 0.5], [0.9, 0.1]]


@pytest.mark.parametrize(("rows", "target"), [([1, 2], [0, 0]), ([9, 3], [0, 0])])
def test_other_rows_or_true_values_are_no_shared_rows(rows, target):
    assert STORED.on(np.array(rows, dtype=np.uint64), np.array(target)) is None
