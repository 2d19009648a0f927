import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from safetensors.numpy import load_file, save_file

from models.data.tensor_file import RowWriter, places, read_rows
from models.errors import DataError

ARRAYS = st.sampled_from([np.float32, np.int32, np.int64, np.uint8]).flatmap(
    lambda dtype: some.arrays(
        dtype,
        st.tuples(st.integers(0, 20), st.integers(0, 3)),
        elements={"allow_nan": False} if dtype is np.float32 else None,
    )
)


@given(ARRAYS, ARRAYS, st.integers(1, 7))
def test_what_is_written_in_stretches_the_library_reads(tmp_path_factory, first, second, stretch):
    path = tmp_path_factory.mktemp("rows") / "a.safetensors"
    tensors = {"first": first, "second": second}
    with RowWriter(path, {name: (each.dtype, each.shape) for name, each in tensors.items()}) as writer:
        for name, each in tensors.items():
            for start in reversed(range(0, len(each), stretch)):
                writer.put(start, {name: each[start : start + stretch]})
    found = load_file(path)
    assert {name: each.dtype for name, each in found.items()} == {name: each.dtype for name, each in tensors.items()}
    assert all(np.array_equal(found[name], each) for name, each in tensors.items())


@given(ARRAYS, st.data())
def test_what_the_library_writes_is_read_in_stretches(tmp_path_factory, values, data):
    path = tmp_path_factory.mktemp("rows") / "a.safetensors"
    save_file({"before": np.zeros(3, np.uint8), "values": values}, path)
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    with path.open("rb") as file:
        rows = read_rows(file.fileno(), places(path)["values"], start, stop)
    assert rows.dtype == values.dtype
    assert np.array_equal(rows, values[start:stop])


def test_rows_that_do_not_fit_are_refused(tmp_path):
    with RowWriter(tmp_path / "a", {"x": (np.dtype(np.float32), (3, 2))}) as writer:
        with pytest.raises(ValueError, match="x: got"):
            writer.put(2, {"x": np.zeros((2, 2))})
        with pytest.raises(ValueError, match="x: got"):
            writer.put(0, {"x": np.zeros((1, 3))})


@pytest.mark.parametrize("harm", ["cut", "absent", "text"])
def test_a_file_that_is_not_whole_is_told(tmp_path, harm):
    path = tmp_path / "a.safetensors"
    save_file({"x": np.zeros((100, 3), np.float32)}, path)
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif harm == "absent":
        path.unlink()
    else:
        path.write_text("no tensors, but a text of some length")
    with pytest.raises(DataError, match=r"cannot be read as tensors .*: remove it and run again"):
        places(path)
