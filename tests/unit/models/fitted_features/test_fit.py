"""Features of the user's `fit`: learnt from the training rows alone, and the same in training, rows and graph."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from models.data.encode import encode
from models.data.preparation import ROWS_FILE, Preparation
from models.errors import UserCodeError
from models.export.preparation_graph import preparation_part
from tests.finished_jobs import run_stretch

CITY = "def fit(frame):\n    return {'mean': frame.groupby('city')['number'].mean()}\n"
RATE = "def fit(frame):\n    return {'rate': (frame['y'] == 'yes').groupby(frame['city']).mean()}\n"
FEATURES = {"columns": ["number", "city"], "fit": "./features.py:fit"}


@pytest.fixture
def prepared(tmp_path, run_prepare, make_spec):
    def run(code, table, **more):
        (tmp_path / "features.py").write_text(code)
        return run_prepare(table, make_spec(features={**FEATURES, **more}, split={"by": "random", "column": "when"}))

    return run


def of_split(folder, code):
    table = pq.read_table(folder / ROWS_FILE)
    return table.filter(pc.equal(table["__split"], code))


def in_graph(rows, preparation):
    feed = {"number": rows["number"].to_numpy(), "city": np.array([text or "" for text in rows["city"].to_pylist()])}
    feed["city"] = feed["city"].astype(object)
    return run_stretch(preparation_part(preparation, {"numeric"}), feed, ["core/numeric"])[0]


def test_a_mean_by_category_is_that_of_the_training_rows_in_rows_and_graph(prepared, rows):
    folder, made = prepared(CITY, rows)
    train, validation = of_split(folder, 0), of_split(folder, 1)
    lookup = made.lookups[0]
    assert (lookup.column, sorted(lookup.keys)) == ("city", ["Bern", "Oslo", "Rome"])
    numbers = train["number"].to_numpy()
    for city, value in zip(lookup.keys, lookup.values, strict=True):
        here = numbers[np.array(train["city"].to_pylist()) == city]
        assert value == pytest.approx(here[~np.isnan(here)].mean())
    assert Preparation.load(folder).model_dump() == made.model_dump()
    np.testing.assert_array_equal(in_graph(validation, made), encode(folder, "validation")["numeric"])
    assert np.isnan(validation["__fitted:mean"].to_numpy()).sum() == validation["city"].null_count > 0


def test_no_feature_sees_validation_or_test_rows(prepared, rows):
    folder, made = prepared(RATE, rows)
    table = pq.read_table(folder / ROWS_FILE)
    held_out = np.zeros(len(rows), bool)
    held_out[table["__row"].to_numpy()[table["__split"].to_numpy() > 0]] = True
    place = rows.column_names.index("number")
    moved = rows.set_column(place, "number", pc.if_else(pa.array(held_out), 1e9, rows["number"]))
    assert prepared(RATE, moved)[1].lookups == made.lookups
    assert prepared(CITY, moved)[1].lookups == prepared(CITY, rows)[1].lookups


def test_a_rate_of_the_target_leaves_out_the_rows_own_target(prepared):
    random = np.random.default_rng(0)
    codes = np.repeat(np.arange(300), 2)
    noise = pa.table(
        {
            "number": random.normal(size=600),
            "city": [f"c{code}" for code in codes],
            "when": np.arange(600),
            "y": random.choice(["no", "yes"], 600),
        }
    )
    folder, made = prepared(RATE, noise)
    train = of_split(folder, 0)
    is_yes = pc.equal(train["y"], "yes").to_numpy(zero_copy_only=False)
    seen = made.lookups[0].find(train["city"])
    assert np.corrcoef(seen, is_yes)[0, 1] > 0.5
    rate = train["__fitted:rate"].to_numpy()
    known = ~np.isnan(rate)
    assert np.corrcoef(rate[known], is_yes[known])[0, 1] < 0.1


def test_rows_without_a_target_have_the_features_too(prepared, rows, run_prepare, make_spec, tmp_path):
    from models.data.unlabelled import read_unlabelled

    labels = [None if at % 4 == 0 else label for at, label in enumerate(rows["y"].to_pylist())]
    table = rows.set_column(rows.column_names.index("y"), "y", pa.array(labels))
    (tmp_path / "features.py").write_text(CITY)
    folder, made = run_prepare(table, make_spec(features=FEATURES, unlabelled=True))
    kept = read_unlabelled(folder)
    expected = made.lookups[0].find(kept["city"])
    np.testing.assert_array_equal(kept["__fitted:mean"].to_numpy(), expected)


def test_a_fit_that_draws_at_random_is_refused(prepared, rows):
    drawn = "import numpy as np\n" + CITY.rstrip("}\n") + " + np.random.default_rng().random()}\n"
    with pytest.raises(UserCodeError, match=r"data\.features\.fit .*something else each time.*seed"):
        prepared(drawn, rows)


def test_a_feature_with_the_name_of_the_target_is_refused(prepared, rows):
    named = CITY.replace("'mean'", "'y'")
    with pytest.raises(UserCodeError, match="got the name 'y', expected a text that is no column"):
        prepared(named, rows)


def test_rows_of_one_group_cannot_be_fitted_to_the_target(rows, run_prepare, make_spec, tmp_path):
    (tmp_path / "features.py").write_text(RATE)
    group = pa.array(np.where(np.arange(len(rows)) < 150, "a", np.where(np.arange(len(rows)) < 175, "b", "c")))
    table = rows.append_column("group", group)
    split = {"by": "group", "column": "group", "seed": 49, "test": 0.3}  # each group falls into a split of its own
    with pytest.raises(UserCodeError, match="all 150 training rows are of one group"):
        run_prepare(table, make_spec(features=FEATURES, split=split))
