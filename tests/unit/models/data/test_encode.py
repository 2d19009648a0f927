import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from models.data.encode import encode, write_tensors
from models.data.preparation import ROWS_FILE
from models.data.prepared_rows import rows_of
from models.errors import DataError


def test_a_table_is_numbers_indices_and_classes(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec())
    tensors = encode(folder, "train")
    num_rows = made.rows["train"]
    assert {name: (value.shape, value.dtype.name) for name, value in tensors.items()} == {
        "numeric": ((num_rows, 4), "float32"),  # three numbers, and the gap of the first
        "categorical": ((num_rows, 2), "int32"),
        "target": ((num_rows,), "int64"),
    }
    assert np.isfinite(tensors["numeric"]).all()
    assert np.abs(tensors["numeric"][:, 1:3].mean(0)).max() < 1e-5
    assert set(tensors["categorical"][:, 0].tolist()) == {0, 1, 2, 3}
    assert set(tensors["target"].tolist()) == {0, 1}


def test_a_regression_target_is_standardised(run_prepare, make_spec, rows):
    folder, made = run_prepare(rows, make_spec(target="number", features={"drop": ["y"]}))
    tensors = encode(folder, "train")
    target, value = tensors["target"], tensors["value"]
    assert made.task == "regression"
    assert target.dtype == np.float32
    assert value.tolist() == rows_of(folder, "train", ["number"]).column(0).to_pylist()
    assert (abs(target.mean()), target.std()) == pytest.approx((0, 1), abs=1e-5)


def test_an_image_is_channels_first_and_untouched(run_prepare, make_spec):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 2, 3, 2), dtype=np.uint8)
    table = pa.table({"image": [one.tobytes() for one in pixels], "y": ["a", "b"] * 30})
    folder, _ = run_prepare(table, make_spec(kind="image", image={"height": 2, "width": 3, "channels": 2}))
    order = rows_of(folder, "train").column("__row").to_numpy()
    assert np.array_equal(encode(folder, "train")["image"], pixels[order].transpose(0, 3, 1, 2))


def test_each_example_of_a_series_ends_horizon_steps_before_its_target(run_prepare, series_spec, series):
    folder, made = run_prepare(series, series_spec())
    raw = series.column("y").to_numpy()
    for split in ("train", "validation", "test"):
        tensors = encode(folder, split)
        assert tensors["series"].shape == (120, 2)
        expected = (raw[tensors["end"] + 2] - made.target.shift) / made.target.scale
        assert np.allclose(tensors["target"], expected, atol=1e-6)
        assert tensors["end"].min() >= 4
        assert tensors["key"].tolist() == series.column("t").take(tensors["end"] + 2).to_pylist()


def test_tensors_are_written_by_split_and_read_back(run_prepare, make_spec, rows, tmp_path):
    folder, _ = run_prepare(rows, make_spec())
    paths = write_tensors(folder, tmp_path / "tensors")
    assert list(paths) == ["train", "validation", "test"]
    for split, path in paths.items():
        expected = encode(folder, split)
        found = load_file(path)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_damaged_folder_is_refused_with_the_cure(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows, make_spec())
    path = folder / ROWS_FILE
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"remove .* and run again"):
        encode(folder, "train")
    pq.write_table(pa.table({"town": ["x"]}), path)
    path.write_bytes(path.read_bytes().replace(b"town", b"t\xffwn"))
    with pytest.raises(DataError, match=r"remove .* and run again"):
        rows_of(folder, "train")
    with pytest.raises(DataError, match="got split 'tset', expected one of train"):
        encode(folder, "tset")


def test_an_empty_table_of_numbers_has_no_categories(run_prepare, make_spec, rows):
    folder, _ = run_prepare(rows.select(["count", "y"]), make_spec())
    assert encode(folder, "test")["categorical"].shape[1] == 0
    assert pq.read_table(folder / ROWS_FILE).column_names == ["count", "y", "__row", "__identity", "__split"]


def test_each_horizon_of_an_example_is_counted_from_the_end_of_its_window(run_prepare, series_spec, series):
    folder, preparation = run_prepare(series, series_spec(horizon=[1, 3]))
    tensors, values = encode(folder, "train"), series.column("y").to_numpy()
    expected = np.stack([values[tensors["end"] + ahead] for ahead in (1, 3)], axis=1)
    np.testing.assert_allclose(tensors["value"], expected)
    scale, shift = preparation.target.scale, preparation.target.shift
    np.testing.assert_allclose(tensors["target"], (expected - shift) / scale, rtol=1e-5)
    assert [output.name for output in preparation.outputs] == ["h1", "h3"]
    times = series.column("t").to_numpy()
    np.testing.assert_array_equal(tensors["first_key"], times[tensors["end"] + 1])
    np.testing.assert_array_equal(tensors["key"], times[tensors["end"] + 3])


def test_several_horizons_are_learnt_on_the_log_scale(run_prepare, series_spec, series):
    positive = series.set_column(1, "y", pc.add(series.column("y"), 1.0))
    spec = series_spec(horizon=[1, 3])
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"target_scale": "log"})})
    folder, preparation = run_prepare(positive, spec)
    tensors, target = encode(folder, "train"), preparation.target
    assert target.log_offset is not None
    np.testing.assert_allclose(tensors["target"], target.encode(tensors["value"]), rtol=1e-5)
    np.testing.assert_allclose(target.decode(tensors["target"]), tensors["value"], atol=1e-5)


def test_a_series_that_was_cut_short_is_told_with_the_cure(run_prepare, series_spec, series):
    folder, _ = run_prepare(series, series_spec())
    (folder / ROWS_FILE).unlink()
    with pytest.raises(DataError, match=r"rows\.parquet: not a whole Parquet file: remove"):
        encode(folder, "train")
