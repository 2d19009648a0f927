import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.split import TEST, TRAIN, VALIDATION, assign, newest, times
from models.errors import DataError
from models.identity.hashing import row_identities
from models.project_spec.blocks import Split
from tests.wide import examples

SPLITS = [
    Split(by="random"),
    Split(by="stratified"),
    Split(by="hash", column="key"),
    Split(by="group", column="group"),
    Split(by="time", column="when"),
]


def table(rows, seed=0):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "key": np.arange(rows),
            "group": random.integers(0, max(rows // 4, 1), rows),
            "when": random.integers(0, max(rows // 2, 1), rows),
            "target": random.choice(["a", "b", "c"], rows, p=[0.7, 0.2, 0.1]),
        }
    )


@given(rows=st.integers(400, 600), seed=st.integers(0, 50), split=st.sampled_from(SPLITS))
@examples(60)
def test_every_row_is_in_one_split_and_each_has_about_its_share(rows, seed, split):
    codes = assign(table(rows, seed), split, "target")
    assert len(codes) == rows
    assert set(codes.tolist()) == {TRAIN, VALIDATION, TEST}
    # Five standard errors where the share is one in expectation; groups of four count as one draw.
    slack = {"stratified": 0.01, "time": 0.02, "group": 0.2}.get(split.by, 0.1)
    assert abs((codes == VALIDATION).mean() - 0.15) < slack
    assert abs((codes == TEST).mean() - 0.15) < slack


@given(rows=st.integers(200, 300), more=st.integers(1, 100), split=st.sampled_from([SPLITS[0], *SPLITS[2:4]]))
@examples(40)
def test_a_row_keeps_its_split_when_rows_are_appended(rows, more, split):
    grown = table(400).slice(0, rows + more)
    before, after = assign(grown.slice(0, rows), split, "target"), assign(grown, split, "target")
    assert np.array_equal(before, after[:rows])


@given(st.integers(0, 50))
@settings(max_examples=20)
def test_a_row_keeps_its_split_when_rows_are_reordered(seed):
    rows = table(300)
    order = np.random.default_rng(seed).permutation(300)
    for split in SPLITS[:4]:
        assert np.array_equal(assign(rows, split, "target")[order], assign(rows.take(order), split, "target"))


def test_stratified_moves_few_rows_when_a_tenth_is_appended():
    grown = table(4400)
    before, after = assign(grown.slice(0, 4000), SPLITS[1], "target"), assign(grown, SPLITS[1], "target")[:4000]
    assert 0 < (before != after).mean() < 0.02


@pytest.mark.parametrize("split", SPLITS[:2], ids=["random", "stratified"])
def test_equal_rows_are_divided_as_any_others_whatever_their_order(split):
    rows = pa.table({"plan": ["a", "b"] * 1000, "target": ["x", "x", "x", "y"] * 500})
    codes = assign(rows, split, "target")
    for kind in range(4):
        assert abs((codes[kind::4] == TEST).mean() - 0.15) < 0.06  # each kind of row stands on every side
    order = np.random.default_rng(0).permutation(2000)
    again = assign(rows.take(order), split, "target")
    kinds = np.tile([0, 1, 0, 3], 500)
    assert np.array_equal(np.sort(10 * kinds + codes), np.sort(10 * kinds[order] + again))


def test_an_id_keeps_a_row_where_it_is_though_its_content_changes():
    rows = table(300)
    named = row_identities(rows, "key")
    changed = rows.set_column(1, "group", pa.array([0] * 300))
    for split in SPLITS[:2]:
        before = assign(rows, split, "target", named)
        assert np.array_equal(before, assign(changed, split, "target", row_identities(changed, "key")))


@given(seed=st.integers(0, 50))
@settings(max_examples=20)
def test_a_group_is_never_divided(seed):
    rows = table(300, seed)
    codes = assign(rows, SPLITS[3], "target")
    groups = rows.column("group").to_numpy()
    assert all(len(set(codes[groups == group])) == 1 for group in set(groups))


@given(seed=st.integers(0, 50), rows=st.integers(60, 300))
@examples(30)
def test_no_time_is_on_two_sides_and_the_newest_rows_are_the_test(seed, rows):
    data = table(rows, seed)
    codes = assign(data, SPLITS[4], "target")
    when = data.column("when").to_numpy()
    assert when[codes == TRAIN].max() < when[codes == VALIDATION].min()
    assert when[codes == VALIDATION].max() < when[codes == TEST].min()


def test_growing_data_never_moves_a_row_back_in_time_order():
    data = pa.table({"when": np.arange(200), "target": ["a"] * 200})
    before = assign(data.slice(0, 150), SPLITS[4], "target")
    after = assign(data, SPLITS[4], "target")[:150]
    assert np.all(after <= before)


def test_stratified_gives_each_class_its_share_even_when_it_is_rare():
    classes = ["common"] * 900 + ["rare"] * 40
    codes = assign(pa.table({"target": classes}), SPLITS[1], "target")
    rare = codes[900:]
    assert abs((rare == TEST).sum() - 6) <= 2
    assert abs((rare == VALIDATION).sum() - 6) <= 2


def test_random_follows_the_seed_and_a_key_column_if_there_is_one():
    data = table(300)
    assert not np.array_equal(
        assign(data, Split(by="random"), "target"), assign(data, Split(by="random", seed=1), "target")
    )
    changed = data.set_column(1, "group", pa.array([0] * 300))
    keyed = Split(by="random", column="key")
    assert np.array_equal(assign(data, keyed, "target"), assign(changed, keyed, "target"))


def test_an_empty_split_is_refused_with_the_counts():
    data = pa.table({"group": [1] * 50, "target": ["a", "b"] * 25})
    with pytest.raises(DataError, match=r"without rows \(train"):
        assign(data, Split(by="group", column="group"), "target")


def test_one_moment_only_leaves_splits_empty():
    data = pa.table({"when": [5] * 50, "target": ["a", "b"] * 25})
    with pytest.raises(DataError, match="without rows"):
        assign(data, SPLITS[4], "target")


def test_a_missing_time_is_refused():
    data = pa.table({"when": [None, *range(20)], "target": ["a"] * 21})
    with pytest.raises(DataError, match=r"1 of 21 rows have no value"):
        assign(data, SPLITS[4], "target")


@pytest.mark.parametrize("by", ["random", "hash", "group"])
def test_rows_without_a_value_are_not_all_put_into_the_test(by):
    data = pa.table({"key": [None, *range(200)], "target": ["a"] * 201})
    with pytest.raises(DataError, match=r"'key': 1 of 201 rows have no value"):
        assign(data, Split(by=by, column="key"), "target")


@pytest.mark.parametrize("by", ["stratified", "position"])
def test_a_column_that_plays_no_part_may_have_gaps(by):
    data = pa.table({"key": [None, *range(200)], "target": ["a"] * 201})
    assert len(assign(data, Split(by=by, column="key"), "target")) == 201


def test_stratifying_by_numbers_is_refused():
    data = pa.table({"target": np.arange(2000) / 7})
    with pytest.raises(DataError, match="to stratify by"):
        assign(data, SPLITS[1], "target")


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["2020-01-02", "2020-01-01 06:00"]]),
        pa.chunked_array([["2020-01-02T00:00:00Z", "2020-01-01T06:00:00Z"]]),
        pa.chunked_array([pa.array(["2020-01-02", "2020-01-01"]).cast(pa.date32())]),
        pa.chunked_array([[2.5, 1.5]]),
    ],
)
def test_times_may_be_dates_text_or_numbers(column):
    values = times(column, "when")
    assert values[0] > values[1]


def test_text_that_is_no_date_is_refused_with_the_cure():
    with pytest.raises(DataError, match=r"data\.split\.column 'when': got 'yesterday'.*a source function"):
        times(pa.chunked_array([["2024-05-31", "yesterday", "2024-06-01"]]), "when")
    with pytest.raises(DataError, match="got times of day"):
        times(pa.chunked_array([pa.array([1, 2], pa.time32("s"))]), "when")


@given(
    codes=st.lists(st.sampled_from([TRAIN, VALIDATION, TEST]), min_size=1, max_size=60),
    rows=st.integers(1, 70),
    seed=st.integers(0, 20),
    is_timed=st.booleans(),
)
def test_only_the_oldest_training_rows_go(codes, rows, seed, is_timed):
    codes = np.array(codes, dtype=np.int8)
    key = np.random.default_rng(seed).permutation(len(codes)) if is_timed else None
    kept = newest(codes, key, rows)
    training = codes == TRAIN
    assert kept[~training].all()
    assert kept[training].sum() == min(rows, training.sum())
    age = np.arange(len(codes)) if key is None else key
    if not kept.all():
        assert age[~kept].max() < age[kept & training].min()
    assert newest(codes, key, None).all()
