import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from models.data.preparation import ROWS_FILE, Preparation
from models.data.prepare import prepare_table
from models.errors import DataError, StoreError
from models.inputs.categorical.record import CategoricalInput
from models.project_spec.reserved_columns import TEXT_PREFIX
from models.scratch import arrays_in


def test_the_prepared_folder_holds_the_rows_and_the_preparation(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec(features={"drop": ["when"]}))
    assert sorted(path.name for path in folder.iterdir()) == ["preparation.json", "rows.parquet"]
    assert Preparation.load(folder) == made
    assert [part.name for part in made.numeric] == ["number", "count"]
    assert [part.name for part in made.of(CategoricalInput)] == ["city", "flag"]
    assert made.left_out == {"when": "dropped by the spec"}
    assert sum(made.rows.values()) == 200
    table = pq.read_table(folder / ROWS_FILE)
    assert table.column_names == ["number", "count", "city", "flag", "y", "__row", "__identity", "__split"]
    assert [str(kind) for kind in table.schema.types] == [
        "double",
        "double",
        *["string"] * 3,
        "int64",
        "uint64",
        "int8",
    ]
    assert table.column("city").null_count == sum(city == "" for city in rows.column("city").to_pylist())


@pytest.mark.parametrize("by", ["random", "stratified", "time", "hash"])
def test_no_statistic_sees_validation_or_test_rows(run_prepare, make_spec, rows, by):
    split = {"by": by, "column": "when" if by in ("time", "hash") else None}
    spec = make_spec(split=split, features={"drop": ["when"]})
    if by == "random":
        spec = make_spec(split={"by": "random", "column": "when"}, features={"drop": ["when"]})
    if by == "stratified":
        spec = make_spec(split={"by": "stratified"}, id="when")  # by its content a changed row would be another one
    folder, _ = run_prepare(rows, spec)
    before = (folder / "preparation.json").read_bytes()
    held_out = np.zeros(200, dtype=bool)
    kept = pq.read_table(folder / ROWS_FILE)
    held_out[kept.column("__row").to_numpy()[kept.column("__split").to_numpy() > 0]] = True
    assert 20 < held_out.sum() < 100
    mask = pa.array(held_out)
    far = pa.array(1e9 + np.arange(200))  # each row another value: equal rows would come into one split
    changed = rows.set_column(0, "number", pc.if_else(mask, far, rows.column("number")))
    changed = changed.set_column(1, "count", pc.if_else(mask, -7, rows.column("count")))
    changed = changed.set_column(2, "city", pc.if_else(mask, "Atlantis", rows.column("city")))
    folder, _ = run_prepare(changed, spec)
    assert (folder / "preparation.json").read_bytes() == before


def test_no_statistic_of_a_series_sees_its_future(run_prepare, series_spec, series):
    folder, _ = run_prepare(series, series_spec())
    before = (folder / "preparation.json").read_bytes()
    codes = pq.read_table(folder / ROWS_FILE).column("__split").to_numpy()
    future = pa.array(np.arange(120) > np.flatnonzero(codes == 0)[-1])
    for name in ("y", "heat"):
        position = series.column_names.index(name)
        series = series.set_column(position, name, pc.if_else(future, 1e6, series.column(name)))
    folder, _ = run_prepare(series, series_spec())
    assert (folder / "preparation.json").read_bytes() == before


def test_preparing_twice_gives_the_same_bytes(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run_prepare(rows, make_spec())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_value_of_a_slice_is_another_dataset(run_prepare, make_spec, rows):
    spec = make_spec(judge={"slices": ["city"]}, features={"drop": ["city"]}, split={"by": "time", "column": "when"})
    folder, _ = run_prepare(rows, spec)
    before = (folder / ROWS_FILE).read_bytes()
    column = pa.array([f"{city} town" for city in rows["city"].to_pylist()])
    run_prepare(rows.set_column(rows.column_names.index("city"), "city", column), spec)
    assert (folder / ROWS_FILE).read_bytes() != before


def test_a_failure_leaves_the_former_folder(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec())
    with pytest.raises(DataError):
        run_prepare(rows.slice(0, 3), make_spec())
    assert Preparation.load(folder) == made
    assert {path.name for path in folder.parent.iterdir()} == {"raw.parquet", "prepared"}


def test_a_full_disk_is_told(run_prepare, make_spec, rows, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    run_prepare(rows, make_spec())
    monkeypatch.setattr(Preparation, "save", full)
    with pytest.raises(StoreError, match="free some space"):
        run_prepare(rows, make_spec())


def test_a_series_keeps_the_target_as_an_input_and_starts_after_one_window(run_prepare, series_spec, series):
    shuffled = series.take(pa.array(np.random.default_rng(0).permutation(120)))
    folder, made = run_prepare(shuffled, series_spec())
    assert [part.name for part in made.numeric] == ["y", "heat"]
    table = pq.read_table(folder / ROWS_FILE)
    assert np.allclose(table.column("y").to_numpy(), series.column("y").to_numpy())
    codes = table.column("__split").to_numpy()
    assert list(codes[:7]) == [-1] * 6 + [0]
    assert sum(made.rows.values()) == 114
    assert np.array_equal(shuffled.column("t").take(table.column("__row")).to_numpy(), np.arange(120))


def test_many_series_are_cut_at_the_same_times_and_gaps_are_counted(run_prepare, make_spec, series):
    held = np.flatnonzero(np.arange(120) != 40)
    shops = [series.append_column("shop", pa.array([name] * 120)) for name in ("a", "b")]
    table = pa.concat_tables([shops[0], shops[1].take(pa.array(held))])
    window = {"length": 5, "horizon": 2, "series_key": "shop"}
    for gaps, rows, facts in (("break", 239, (1, 0)), ("fill", 240, (0, 1))):
        spec = make_spec(kind="series", window={**window, "gaps": gaps}, split={"by": "time", "column": "t"})
        folder, made = run_prepare(table, spec)
        assert made.series is not None
        assert (made.series.num_series, made.series.frequency, made.series.key) == (2, "1", "shop")
        assert (made.series.num_gaps, made.series.num_inserted) == facts
        assert made.left_out["shop"] == "it names the series (data.window.series_key)"
        prepared = pq.read_table(folder / ROWS_FILE)
        assert prepared.num_rows == rows
        codes, steps = prepared.column("__split").to_numpy(), prepared.column("__step").to_numpy()
        assert (steps[codes >= 0] >= 6).all()
        cuts = [set(prepared.column("__key").to_numpy()[codes == split]) for split in (0, 1, 2)]
        assert max(cuts[0]) < min(cuts[1]) <= max(cuts[1]) < min(cuts[2])
        # 120 steps of each series without the first six; b also lacks step 40 and, when it breaks, the six after it.
        assert sum(made.rows.values()) == 2 * 114 - (1 if gaps == "fill" else 7)


def test_an_image_gets_its_mean_and_spread_per_channel(run_prepare, make_spec):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (60, 2, 3, 2), dtype=np.uint8)
    pixels[..., 1] = 51
    table = pa.table({"image": [one.tobytes() for one in pixels], "y": random.choice(["a", "b"], 60)})
    image = {"height": 2, "width": 3, "channels": 2}
    _, made = run_prepare(table, make_spec(kind="image", image=image))
    assert made.pixels is not None
    assert made.pixels.mean[1] == pytest.approx(0.2)
    assert made.pixels.std[1] == 1.0
    assert abs(made.pixels.mean[0] - 0.5) < 0.1


def test_an_id_of_each_row_is_left_out_unless_it_is_asked_for(run_prepare, make_spec, rows):
    table = rows.append_column("name", pa.array([f"row {i}" for i in range(200)]))
    _, made = run_prepare(table, make_spec())
    assert "another value" in made.left_out["name"]
    _, asked = run_prepare(table, make_spec(features={"kinds": {"name": "categorical"}, "max_categories": 5}))
    assert len(asked.of(CategoricalInput)[-1].categories) == 5


def replaced(table, name, values):
    return table.set_column(table.column_names.index(name), name, pa.chunked_array([pa.array(values)]))


def test_bad_data_is_refused_with_the_column_and_the_cure(run_prepare, make_spec, rows):
    number = rows.column("number").to_pylist()
    cases = [
        (rows.slice(0, 5), make_spec(), "5 rows, expected at least 10"),
        (rows, make_spec(target="yy"), "data.target: no column 'yy'.*did you mean 'y'"),
        (rows, make_spec(judge={"slices": ["town"]}), "judge.slices: no column 'town'"),
        (replaced(rows, "number", [None] * 200), make_spec(), "'number' has no value at all.*drop"),
        (replaced(rows, "number", [*number[:-1], np.inf]), make_spec(), "'number': 1 infinite values, first in rows"),
        (replaced(rows, "y", ["yes"] * 200), make_spec(), "one class only"),
        (replaced(rows, "y", pa.nulls(200)), make_spec(), "'y' has no value at all"),
        (
            replaced(rows, "y", [f"c{i}" for i in range(200)]),
            make_spec(),
            "rows are of a class that no training row has.*an id or free text",
        ),
        (rows, make_spec(features={"columns": ["nope"]}), "data.features.columns: no column 'nope'"),
        (rows, make_spec(features={"kinds": {"city": "numeric"}}), "'city': declared numeric, but"),
        (rows.select(["when", "y"]), make_spec(split={"by": "time", "column": "when"}), "leaves no input column"),
    ]
    for table, spec, message in cases:
        with pytest.raises(DataError, match=message):
            run_prepare(table, spec)


def test_only_unique_text_leaves_no_input(run_prepare, make_spec, rows):
    table = pa.table({"name": [f"row {i}" for i in range(200)], "y": rows.column("y")})
    with pytest.raises(DataError, match=r"leaves no input column.*name"):
        run_prepare(table, make_spec())


def test_another_made_feature_moves_no_row_between_training_and_test(run_prepare, make_spec, rows, tmp_path):
    """Else the champion is judged on rows that it was trained on."""
    folder, _ = run_prepare(rows, make_spec())
    before = pq.read_table(folder / ROWS_FILE).column("__split")
    body = "frame['double'] = frame['number'] * 2; frame['number'] = frame['number'].clip(8).fillna(0)"
    (tmp_path / "own.py").write_text(f"def make(frame):\n    {body}\n    return frame\n")
    folder, made = run_prepare(rows, make_spec(features={"make": "./own.py:make"}))
    assert "double" in [part.name for part in made.numeric]
    assert pq.read_table(folder / ROWS_FILE).column("__split").equals(before), "nor one that cleans what came"


def test_only_the_newest_training_rows_are_trained_on_and_nothing_else_changes(run_prepare, make_spec, rows):
    split = {"by": "time", "column": "when"}
    folder, made = run_prepare(rows, make_spec(split=split))
    everything = pq.read_table(folder / ROWS_FILE)
    folder, fewer = run_prepare(rows, make_spec(split=split, newest=100))
    kept = pq.read_table(folder / ROWS_FILE)
    assert fewer.rows == {**made.rows, "train": 100}
    held_out = pc.field("__split") > 0
    assert kept.filter(held_out).column("__row").equals(everything.filter(held_out).column("__row"))
    when = rows.column("when").to_pylist()
    train = set(kept.filter(pc.field("__split") == 0).column("__row").to_pylist())
    older = set(everything.filter(pc.field("__split") == 0).column("__row").to_pylist()) - train
    assert max(when[row] for row in older) <= min(when[row] for row in train)


def test_what_is_known_beforehand_is_an_input_for_each_horizon(run_prepare, series_spec, series):
    folder, made = run_prepare(series, series_spec(horizon=[1, 3], known_future=["heat"]))
    heat, rows = series.column("heat").to_numpy(), pq.read_table(folder / ROWS_FILE)
    np.testing.assert_allclose(rows.column("heat_h3").to_numpy()[:-3], heat[3:])
    assert np.isnan(rows.column("heat_h3").to_numpy()[-3:]).all()
    assert [(part.name, part.column, part.ahead) for part in made.numeric] == [
        ("y", "y", 0),
        ("heat", "heat", 0),
        ("heat_h1", "heat", 1),
        ("heat_h3", "heat", 3),
    ]
    assert (made.step_columns, made.num_future, made.num_steps) == (["y", "heat"], 3, 8)
    _, alone = run_prepare(series, series_spec(known_future=["heat"]))
    assert [part.name for part in alone.numeric] == ["y", "heat", "heat_h2"]
    taken = series.append_column("heat_h2", series.column("heat"))
    with pytest.raises(DataError, match="the input 'heat_h2' of 'heat' has the name of a column of the data"):
        run_prepare(taken, series_spec(known_future=["heat"]))


def test_a_column_that_is_known_beforehand_has_values_in_training(run_prepare, series_spec, series):
    late = pa.array([None] * 100 + [1.0] * 20)
    with pytest.raises(DataError, match=r"data.window.known_future: column 'late' has no value in the training rows"):
        run_prepare(series.append_column("late", late), series_spec(known_future=["late"]))


def test_a_target_with_the_name_of_an_output_is_renamed(run_prepare, series_spec, series):
    spec = series_spec(horizon=[1, 3])
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"target": "h1"})})
    with pytest.raises(DataError, match=r"is a column of the data: rename it in the source, or, if it is an input"):
        run_prepare(series.rename_columns(["t", "h1", "heat"]), spec)


@pytest.mark.parametrize(("targets", "task"), [(["a", "b"], "multilabel"), (["a", "x"], "regression"), (["x"], None)])
def test_a_text_is_scored_by_each_target(run_prepare, make_spec, targets, task):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, (200, 2))
    words = [["sun", "rain"], ["tea", "milk"]]
    notes = [f"{words[0][first]} and {words[1][second]} {row % 9}" for row, (first, second) in enumerate(labels)]
    table = pa.table({"note": notes, "a": labels[:, 0], "b": labels[:, 1], "x": draw.normal(9.0 * labels[:, 0])})
    features = {"columns": ["note"], "kinds": {"note": "text"}}
    spec = make_spec(target=targets[0] if len(targets) == 1 else targets, task=task, features=features)
    folder, preparation = run_prepare(table, spec)
    rows = pq.read_table(folder / ROWS_FILE)
    scores = np.array(rows.column(TEXT_PREFIX + "note").to_pylist())[:, : len(targets)]
    for at, name in enumerate(targets):
        assert abs(np.corrcoef(scores[:, at], rows.column(name).to_numpy())[0, 1]) > 0.9
    assert {"and", "milk", "rain"} <= {*preparation.texts[0].words}


@pytest.mark.parametrize("by", ["random", "stratified", "position", "time", "group", "hash", "series"])
def test_a_table_that_lies_in_files_is_prepared_as_one_in_memory(
    monkeypatch, tmp_path, make_spec, series_spec, rows, series, by
):
    column = {"time": "when", "hash": "when", "group": "city"}.get(by)
    if by == "group":
        rows = rows.set_column(2, "city", pa.array([f"c{row % 40}" for row in range(200)]))
    lacking = pa.array([None if row % 11 == 5 else value for row, value in enumerate(rows.column("y").to_pylist())])
    rows = pa.concat_tables([rows.set_column(rows.column_names.index("y"), "y", lacking), rows.slice(0, 20)])
    newest = 120 if by == "time" else None
    spec = series_spec() if by == "series" else make_spec(split={"by": by, "column": column}, newest=newest)
    table = series if by == "series" else rows
    expected, record = prepare_table(table, spec, tmp_path)
    monkeypatch.setattr("models.scratch.PART", 13)
    monkeypatch.setattr("models.identity.hashing._SORTED", 20)
    with arrays_in(tmp_path, large=1):
        in_files, same_record = prepare_table(table, spec, tmp_path)
    assert in_files.schema == expected.schema
    assert repr(in_files.to_pydict()) == repr(expected.to_pydict())  # NaN equals NaN here
    assert same_record == record
    assert not list(tmp_path.iterdir())
