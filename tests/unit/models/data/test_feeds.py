import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.encode import encode
from models.data.feeds import feed_at, feeds, slice_values, targets
from models.data.prepared_rows import rows_of
from models.errors import DataError
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.rows import encode_numeric
from models.project_spec.blocks import Features
from models.project_spec.reserved_columns import KEY_COLUMN


def joined(batches):
    parts = list(batches)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_a_table_is_fed_by_column_in_its_own_units(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec())
    fed = joined(feeds(folder, "train", batch=7))
    assert list(fed) == ["number", "count", "when", "city", "flag"]
    assert fed["number"].dtype == np.float64
    assert np.isnan(fed["number"]).any()
    assert set(fed["city"]) == {"Rome", "Oslo", "Bern", ""}
    assert set(fed["flag"]) == {"true", "false"}
    encoded = encode(folder, "train")["numeric"]
    for position, part in enumerate(made.numeric):
        assert np.array_equal(encode_numeric(fed[part.name], part), encoded[:, position])


def test_batches_have_the_size_asked_for(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec())
    sizes = [len(feed["number"]) for feed in feeds(folder, "train", batch=50)]
    assert sum(sizes) == made.rows["train"]
    assert set(sizes[:-1]) == {50}


def test_a_champion_with_other_columns_gets_its_own(run_prepare, make_spec, rows):
    _, champion = run_prepare(rows, make_spec(features={"columns": ["count", "city"]}))
    folder, _ = run_prepare(rows, make_spec())
    assert list(next(feeds(folder, "test", champion))) == ["count", "city"]


def test_a_column_that_the_champion_wants_and_we_lack_is_named(run_prepare, make_spec, rows):
    _, champion = run_prepare(rows, make_spec())
    folder, _ = run_prepare(rows, make_spec(features={"drop": ["city"]}))
    with pytest.raises(DataError, match="no column 'city'"):
        next(feeds(folder, "test", champion))


def test_a_champion_gets_what_is_prepared_no_more_from_the_raw_table(run_prepare, make_spec, rows):
    """Else leaving out a column would leave out the comparison with the champion."""
    folder, champion = run_prepare(rows, make_spec())
    before = joined(feeds(folder, "test", champion))
    folder, _ = run_prepare(rows, make_spec(features={"drop": ["city", "number"]}))
    after = joined(feeds(folder, "test", champion, raw=folder.parent / "raw.parquet"))
    assert after.keys() == before.keys()
    for name, values in before.items():
        assert after[name].dtype == values.dtype
        assert np.array_equal(after[name], values, equal_nan=values.dtype.kind == "f"), name
    pq.write_table(rows.drop_columns(["city"]), folder.parent / "other.parquet")
    with pytest.raises(DataError, match="no column 'city'"):
        next(feeds(folder, "test", champion, raw=folder.parent / "other.parquet"))


def test_a_column_that_became_text_is_told(run_prepare, make_spec, rows):
    _, champion = run_prepare(rows, make_spec())
    folder, _ = run_prepare(rows, make_spec(features={"kinds": {"count": "categorical"}}))
    with pytest.raises(DataError, match="takes 'count' as a number, but these rows hold string"):
        next(feeds(folder, "test", champion))


def test_an_image_is_fed_channels_last(run_prepare, make_spec):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 2, 3, 2), dtype=np.uint8)
    table = pa.table({"picture": [one.tobytes() for one in pixels], "y": ["a", "b"] * 30})
    image = {"column": "picture", "height": 2, "width": 3, "channels": 2}
    folder, _ = run_prepare(table, make_spec(kind="image", image=image))
    fed = joined(feeds(folder, "test", batch=4))
    assert np.array_equal(fed["image"].transpose(0, 3, 1, 2), encode(folder, "test")["image"])


def test_a_series_is_fed_in_raw_windows(run_prepare, series_spec, series):
    folder, made = run_prepare(series, series_spec())
    fed = joined(feeds(folder, "test", batch=4))["series"]
    assert fed.shape == (made.rows["test"], 5, 2)
    ends = encode(folder, "test")["end"]
    raw = np.stack([series.column(name).to_numpy() for name in ("y", "heat")], axis=1)
    assert np.array_equal(fed[0], raw[ends[0] - 4 : ends[0] + 1])
    assert np.array_equal(targets(folder, "test"), raw[ends + 2, 0])


def test_some_examples_are_those_of_the_whole(run_prepare, make_spec, rows):
    same_at(*run_prepare(rows, make_spec()))


def test_some_windows_are_those_of_the_whole(run_prepare, series_spec, series):
    same_at(*run_prepare(series, series_spec()))


def test_an_example_that_a_split_lacks_is_an_error(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec())
    beyond = np.array([0, made.rows["test"]])
    with pytest.raises(DataError, match=f"{made.rows['test']} test examples, but tensors of more"):
        feed_at(folder, "test", made, beyond)


def same_at(folder, made):
    at = np.array([0, 3, 11])
    some, whole = feed_at(folder, "test", made, at), joined(feeds(folder, "test"))
    assert list(some) == list(whole)
    for name, values in some.items():
        np.testing.assert_array_equal(values, whole[name][at])


def test_a_champion_of_another_window_sees_the_same_targets_but_never_another_horizon(run_prepare, series_spec, series):
    _, champion = run_prepare(series, series_spec(length=9))
    _, farther = run_prepare(series, series_spec(horizon=3))
    folder, made = run_prepare(series, series_spec())
    assert joined(feeds(folder, "test", champion))["series"].shape == (made.rows["test"], 9, 2)
    with pytest.raises(DataError, match="looks 3 steps ahead and these rows 2"):
        next(feeds(folder, "test", farther))


def test_a_champion_sees_the_columns_that_it_knew_beforehand(run_prepare, series_spec, series):
    spec = series_spec(horizon=[1, 2], known_future=["heat"])
    folder, champion = run_prepare(series, spec)
    before = joined(feeds(folder, "test"))["series"]
    assert before.shape[2] == 4
    folder, _ = run_prepare(series, series_spec(horizon=[1, 2]))
    np.testing.assert_array_equal(joined(feeds(folder, "test", champion))["series"], before)
    alone = spec.data.model_copy(update={"features": Features(drop=["heat"])})
    folder, made = run_prepare(series, spec.model_copy(update={"data": alone}))
    assert [part.name for part in made.numeric] == ["y", "heat_h1", "heat_h2"]
    np.testing.assert_array_equal(joined(feeds(folder, "test"))["series"], before[:, :, [0, 2, 3]])


def test_targets_are_class_indices(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    assert np.array_equal(targets(folder, "validation"), encode(folder, "validation")["target"])


def test_slices_that_are_no_inputs_come_with_the_prepared_rows(run_prepare, make_spec, rows):
    slices = ["flag", "city", "count", "when"]
    folder, preparation = run_prepare(
        rows, make_spec(judge={"slices": slices}, features={"drop": ["city"]}, split={"by": "time", "column": "when"})
    )
    (folder.parent / "raw.parquet").unlink()
    values = slice_values(folder, "test", slices)
    assert [part.name for part in (*preparation.numeric, *preparation.of(CategoricalInput))] == [
        "number",
        "count",
        "flag",
    ]
    assert values["city"].tolist() == rows["city"].to_pylist()[170:]
    assert values["when"].tolist() == [str(row) for row in range(170, 200)]
    assert set(values["flag"]) == {"true", "false"}
    assert all(text.isdigit() for text in values["count"])
    fed = joined(feeds(folder, "test"))
    assert np.array_equal(values["flag"], fed["flag"])
    assert slice_values(folder, "test", []) == {}
    with pytest.raises(DataError, match=r"rows\.parquet: no column 'town' for judge\.slices.*run the loop again"):
        slice_values(folder, "test", ["town"])


MADE = """
def make(frame):
    return frame.assign(home=frame["city"] + frame["count"].astype(str), big=frame["count"] > 9)
"""


def test_slices_and_groups_may_be_made_features(run_prepare, make_spec, rows, tmp_path):
    (tmp_path / "own.py").write_text(MADE)
    spec = make_spec(
        judge={"slices": ["big"]},
        features={"make": "./own.py:make", "drop": ["big"]},
        split={"by": "group", "column": "home"},
    )
    folder, _ = run_prepare(rows, spec)
    fed = joined(feeds(folder, "test"))
    assert (slice_values(folder, "test", ["big"])["big"] == "true").tolist() == (fed["count"] > 9).tolist()
    homes = [f"{city}{count:.0f}" for city, count in zip(fed["city"], fed["count"], strict=True)]
    keys = rows_of(folder, "test", [KEY_COLUMN]).column(0).to_pylist()
    assert len(set(zip(homes, keys, strict=True))) == len(set(homes))


def test_slices_of_a_series_stand_in_its_order(run_prepare, make_spec, series):
    table = series.append_column("phase", pa.array([f"p{step % 3}" for step in range(120)]))
    spec = make_spec(
        judge={"slices": ["phase"]}, kind="series", window={"length": 5}, split={"by": "time", "column": "t"}
    )
    folder, preparation = run_prepare(table.take(list(reversed(range(120)))), spec)
    count = preparation.rows["test"]
    assert slice_values(folder, "test", ["phase"])["phase"].tolist() == [f"p{step % 3}" for step in range(120)][-count:]
    assert encode(folder, "test")["series"].shape == (120, 2)
