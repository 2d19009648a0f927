import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from models.data.target_encoding import TargetEncoding
from models.feedback.label_text import label_values
from models.identity.hashing import SortedHashSet
from models.monitoring.examples import MOST_MEASURED, KeyedPredictions, keys_of, sampled

KEYS = st.lists(st.integers(0, 50), max_size=30).map(lambda keys: np.array(keys, dtype=np.uint64))


@given(st.lists(KEYS, max_size=6))
def test_each_key_is_new_once(batches: list[np.ndarray]) -> None:
    seen = SortedHashSet()
    known: set[int] = set()
    for keys in batches:
        fresh = seen.new(keys)
        assert sorted(keys[fresh].tolist()) == sorted(set(keys.tolist()) - known)
        known |= set(keys.tolist())


def test_what_was_seen_before_a_restart_is_known() -> None:
    assert SortedHashSet(np.array([5, 3], dtype=np.uint64)).new(np.array([3, 4, 4], dtype=np.uint64)).tolist() == [
        False,
        True,
        False,
    ]


def test_labels_find_their_prediction_and_the_last_one_counts() -> None:
    made = KeyedPredictions.empty().with_more(np.array([9, 4], np.uint64), np.array([0.9, 0.4]))
    made = made.with_more(np.array([6], np.uint64), np.array([0.6]))
    told, found = made.with_labels(np.array([6, 1, 4, 6], np.uint64), np.array([0.0, 1.0, 1.0, 1.0]))
    assert found.tolist() == [True, False, True, True]
    assert told.prediction.tolist() == [0.4, 0.6, 0.9]
    assert told.labelled.tolist() == [True, True, False]
    assert told.label[:2].tolist() == [1.0, 1.0]
    again = KeyedPredictions.from_bytes(told.to_bytes())
    assert (again.keys == told.keys).all()
    assert KeyedPredictions.empty().with_labels(np.array([1], np.uint64), np.array([1.0]))[1].tolist() == [False]


def test_predictions_of_many_classes_are_kept_as_rows() -> None:
    made = KeyedPredictions.empty().with_more(np.array([2, 1], np.uint64), np.array([[0.2, 0.8], [0.7, 0.3]]))
    assert made.with_more(np.array([0], np.uint64), np.array([[0.5, 0.5]])).prediction.tolist() == [
        [0.5, 0.5],
        [0.7, 0.3],
        [0.2, 0.8],
    ]


def test_large_windows_are_sampled_by_the_ids_alone() -> None:
    keys = keys_of(pa.chunked_array([[str(number) for number in range(20_000)]]))
    assert len(np.unique(keys)) == 20_000
    assert sampled(keys, MOST_MEASURED).all()
    kept = sampled(keys, 10 * MOST_MEASURED)
    assert 0.08 < kept.mean() < 0.12
    assert (sampled(keys[::-1], 10 * MOST_MEASURED) == kept[::-1]).all()


def test_labels_are_classes_or_numbers_and_else_nothing() -> None:
    texts = pa.chunked_array([["yes", "no", "perhaps", None]])
    assert label_values(texts, TargetEncoding(name="y", classes=["no", "yes"])).tolist()[:2] == [1.0, 0.0]
    assert np.isnan(label_values(texts, TargetEncoding(name="y", classes=["no", "yes"]))[2:]).all()
    numbers = label_values(pa.chunked_array([["1.5", "x", "inf", None]]), None)
    assert numbers[0] == 1.5
    assert np.isnan(numbers[1:]).all()
