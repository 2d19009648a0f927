import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from models.data.encode import write_tensors
from models.data.unlabelled import UNLABELLED_FILE, read_unlabelled


def without_target(rows: pa.Table, every: int) -> pa.Table:
    labels = [None if i % every == 0 else label for i, label in enumerate(rows.column("y").to_pylist())]
    return rows.set_column(rows.column_names.index("y"), "y", pa.array(labels))


def test_rows_without_a_target_are_kept_aside_when_wanted(rows, make_spec, run_prepare, tmp_path):
    table = without_target(rows, 4)
    folder, plain = run_prepare(table, make_spec())
    assert not (folder / UNLABELLED_FILE).exists()
    folder, preparation = run_prepare(table, make_spec(unlabelled=True))
    assert preparation == plain
    assert read_unlabelled(folder).num_rows == 50
    paths = write_tensors(folder, tmp_path)
    tensors = load_file(paths["unlabelled"])
    train = load_file(paths["train"])
    assert set(tensors) == {"numeric", "categorical"}
    for name, tensor in tensors.items():
        assert tensor.dtype == train[name].dtype
        assert tensor.shape == (50, train[name].shape[1])
    assert np.isfinite(tensors["numeric"]).all()


def test_no_such_row_leaves_no_file(rows, make_spec, run_prepare):
    folder, _ = run_prepare(rows, make_spec(unlabelled=True))
    assert read_unlabelled(folder) is None


def test_rows_of_the_time_of_validation_and_test_are_left_out(rows, make_spec, run_prepare):
    table = without_target(rows, 4).append_column("id", pa.array(np.arange(200) * 1.0))
    split = {"by": "time", "column": "when", "validation": 0.25, "test": 0.25}
    folder, _ = run_prepare(table, make_spec(unlabelled=True, split=split))
    place = read_unlabelled(folder).column("id").to_numpy()
    assert 23 <= len(place) <= 26
    assert place.max() < 102


def test_unlabelled_rows_of_a_moment_of_validation_are_left_out(rows, make_spec, run_prepare):
    """Where few moments share all rows, the cut lies beside the share that was asked for."""
    year = np.repeat([2010, 2011, 2012], [90, 60, 50])
    table = without_target(rows, 4).append_column("year", pa.array(year))
    split = {"by": "time", "column": "year", "validation": 0.25, "test": 0.25}
    features = {"columns": ["number", "year"]}
    folder, _ = run_prepare(table, make_spec(unlabelled=True, split=split, features=features))
    prepared = pq.read_table(folder / "rows.parquet")
    trained = set(prepared["year"].to_numpy()[prepared["__split"].to_numpy() == 0])
    assert set(read_unlabelled(folder)["year"].to_numpy()) <= trained


def test_rows_of_groups_of_validation_and_test_are_left_out(rows, make_spec, run_prepare):
    table = without_target(rows, 3).append_column("id", pa.array(np.arange(200) * 1.0))
    table = table.append_column("team", pa.array([f"t{i % 20}" for i in range(200)]))
    folder, _ = run_prepare(table, make_spec(unlabelled=True, split={"by": "group", "column": "team"}))
    prepared = pq.read_table(folder / "rows.parquet")
    judged = prepared["id"].to_numpy()[prepared["__split"].to_numpy() > 0] % 20
    learnt = read_unlabelled(folder).column("id").to_numpy() % 20
    assert len(learnt) > 20
    assert not set(judged) & set(learnt)


def test_the_key_of_a_split_goes_beside_the_tensors(rows, make_spec, run_prepare, tmp_path):
    folder, _ = run_prepare(rows, make_spec(split={"by": "time", "column": "when"}))
    train = load_file(write_tensors(folder, tmp_path)["train"])
    assert (np.diff(train["key"]) > 0).all()
    table = rows.append_column("team", pa.array([f"t{i % 20}" for i in range(200)]))
    folder, _ = run_prepare(table, make_spec(split={"by": "group", "column": "team"}))
    sides = write_tensors(folder, tmp_path)
    keys = [set(load_file(sides[name])["key"].tolist()) for name in ("train", "validation")]
    assert not keys[0] & keys[1]
    folder, _ = run_prepare(rows, make_spec())
    assert "key" not in load_file(write_tensors(folder, tmp_path)["train"])
