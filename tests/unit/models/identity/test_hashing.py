import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.identity.hashing import (
    SortedHashSet,
    hash_rows,
    hash_values,
    least,
    row_identities,
    stored_identities,
    unit_interval,
)


def test_equal_rows_hash_alike_whatever_the_column_order_chunking_or_number_type():
    whole = pa.table({"a": [1, 2, 1], "b": ["x", "y", "x"]})
    floats = pa.table({"b": ["x", "y", "x"], "a": [1.0, 2.0, 1.0]})
    chunked = pa.concat_tables([whole.slice(0, 1), whole.slice(1)])
    expected = hash_rows(whole, ["a", "b"])
    assert expected[0] == expected[2] != expected[1]
    assert np.array_equal(hash_rows(floats, ["b", "a"]), expected)
    assert np.array_equal(hash_rows(chunked, ["a", "b"]), expected)


def test_dictionary_encoded_text_hashes_like_text():
    text = pa.chunked_array([["b", "a", None, "b"]])
    assert np.array_equal(hash_values(text, "c"), hash_values(text.dictionary_encode(), "c"))


def test_a_new_column_that_is_missing_in_old_rows_leaves_their_hash_alone():
    old = pa.table({"a": [1, 2]})
    grown = pa.table({"a": [1, 2, 3], "new": pa.array([None, None, 7])})
    assert np.array_equal(hash_rows(grown, ["a", "new"])[:2], hash_rows(old, ["a"]))


def test_the_seed_and_the_column_name_are_keys():
    column = pa.chunked_array([[1, 2, 3]])
    assert not np.array_equal(hash_values(column, "a"), hash_values(column, "b"))
    assert not np.array_equal(hash_values(column, "a"), hash_values(column, "a", seed=1))


def test_large_integers_that_share_a_float_are_told_apart():
    hashes = hash_values(pa.chunked_array([[2**53, 2**53 + 1]]), "id")
    assert hashes[0] != hashes[1]


@given(st.lists(st.binary(max_size=20), max_size=60))
def test_different_bytes_get_different_hashes(values):
    hashes = hash_values(pa.chunked_array([pa.array(values, pa.binary())]), "c")
    assert len(set(hashes.tolist())) == len(set(values))


def test_points_are_uniform():
    points = unit_interval(hash_values(pa.chunked_array([pa.array(range(20_000))]), "id"))
    shares = np.histogram(points, 10, (0, 1))[0] / len(points)
    assert np.all(np.abs(shares - 0.1) < 0.01)


def test_equal_rows_have_identities_of_their_own_and_a_row_without_an_id_that_of_its_content():
    rows = pa.table({"key": ["a", None, None, None], "x": [1, 2, 2, 3]})
    by_content, by_id = row_identities(rows), row_identities(rows, "key")
    assert len(set(by_content.tolist())) == len(set(by_id.tolist())) == 4
    assert np.array_equal(by_content[1:], by_id[1:])
    assert by_id[0] == row_identities(pa.table({"key": ["a"], "x": [9]}), "key")[0]
    assert len(row_identities(rows.slice(0, 0))) == 0


def test_a_list_column_is_refused_with_the_cure():
    with pytest.raises(DataError, match="flatten it"):
        hash_values(pa.chunked_array([[[1], [2]]]), "lists")


@pytest.mark.parametrize(("coarse", "fine"), [("time32[s]", "time64[ns]"), ("duration[s]", "duration[ns]")])
def test_times_of_day_and_durations_hash_alike_in_every_unit(coarse: str, fine: str):
    kinds = {"time32[s]": pa.time32("s"), "time64[ns]": pa.time64("ns")}
    kinds |= {"duration[s]": pa.duration("s"), "duration[ns]": pa.duration("ns")}
    column = pa.chunked_array([pa.array([23_400, 0, None], pa.int32())])
    if coarse.startswith("duration"):
        column = column.cast(pa.int64())
    column = column.cast(kinds[coarse])
    hashes = hash_values(column, "departs")
    assert len(set(hashes.tolist())) == 3
    assert np.array_equal(hash_values(column.cast(kinds[fine]), "departs"), hashes)


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=30))
def test_each_hash_is_new_once_in_whatever_pieces_it_comes(pieces):
    seen, known, found = SortedHashSet(), set(), []
    for piece in pieces:
        places = seen.first_places(np.array(piece, dtype=np.uint64))
        found += [piece[place] for place in places]
        assert sorted(places) == list(places)
        for place, value in enumerate(piece):
            assert (place in places) == (value not in known)
            known.add(value)
    assert sorted(found) == sorted(known)


def test_large_decimals_that_share_a_float_are_told_apart_and_small_ones_are_numbers():
    values = pa.chunked_array([pa.array([10**20, 10**20 + 1, 3, None], pa.decimal128(30, 0))])
    hashes = hash_values(values, "id")
    assert len(set(hashes.tolist())) == 4
    assert hashes[2] == hash_values(pa.chunked_array([[3]]), "id")[0]


def test_of_the_rows_that_a_model_knows_the_smallest_identities_are_stored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("models.identity.hashing.MOST_KNOWN", 100)
    monkeypatch.setattr("models.scratch.PART", 64)
    identities, is_known = row_identities(pa.table({"x": np.arange(1000)})), np.arange(1000) % 5 > 0
    stored = stored_identities(identities, is_known)
    np.testing.assert_array_equal(stored[~is_known], identities[~is_known])
    np.testing.assert_array_equal(least([stored[is_known]], 100), np.sort(identities[is_known])[:100])
    assert (stored[is_known] == 2**64 - 1).sum() == 700
    np.testing.assert_array_equal(stored_identities(identities[:100], is_known[:100]), identities[:100])
