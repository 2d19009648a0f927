import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import DatetimeInput
from models.inputs.fitted.record import FittedInput
from models.inputs.numeric.record import NumericInput
from models.inputs.record import LearntFiles
from models.inputs.records import RECORDS
from models.inputs.rows import ROWS, encoded, kind_of_texts, prepared_columns
from models.project_spec.reserved_columns import FITTED_PREFIX

NUMBER = NumericInput(name="n", fill=0.0)
FITTED = FittedInput(name="f", fill=0.0, shift=1.0)
CITY = CategoricalInput(name="c", categories=["Rome", "Oslo"])
DAY = DatetimeInput(name="d", cycles=[], trend=True, low=0.0, high=100.0, shift=0.0, scale=10.0)
BLANK = {"numeric": np.empty((2, 0), np.float32), "categorical": np.empty((2, 0), np.int32)}


def test_every_kind_reads_rows_and_fitted_features_are_learnt_last() -> None:
    assert set(ROWS) == set(RECORDS)
    assert list(ROWS)[-1] == "fitted"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int64(), ["numeric"]),
        (pa.decimal128(9, 2), ["numeric"]),
        (pa.bool_(), ["categorical"]),
        (pa.large_string(), ["categorical"]),
        (pa.date32(), ["datetime"]),
        (pa.timestamp("us", "UTC"), ["datetime"]),
        (pa.binary(), []),
        (pa.duration("s"), []),
    ],
)
def test_a_type_is_guessed_as_one_kind(kind: pa.DataType, expected: list[str]) -> None:
    assert [name for name, row in ROWS.items() if row.guess(kind)] == expected


def test_texts_are_told_from_categories_by_their_values() -> None:
    texts = [f"the {row} texts of a column differ" for row in range(60)]
    assert kind_of_texts(pa.chunked_array([texts]), "categorical") == "text"
    assert kind_of_texts(pa.chunked_array([["a", "b"] * 30]), "categorical") == "categorical"


def test_the_blocks_of_all_kinds_make_a_tensor_in_the_order_of_the_table() -> None:
    rows = pa.table({"d": [20.0, 30.0], "n": [1.0, 2.0], "c": ["Oslo", "Bern"], FITTED_PREFIX + "f": [5.0, 6.0]})
    tensors = encoded(rows, [NUMBER, FITTED, CITY, DAY], LearntFiles(), BLANK)
    assert tensors["numeric"].tolist() == [[1.0, 4.0, 2.0], [2.0, 5.0, 3.0]]
    assert tensors["categorical"].tolist() == [[2], [0]]
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {"numeric": np.float32, "categorical": np.int32}
    assert encoded(rows, [NUMBER], LearntFiles(), BLANK)["categorical"].shape == (2, 0)


def test_raw_rows_become_the_columns_of_prepared_rows() -> None:
    rows = pa.table({"n": [1, 2], "c": ["", "Rome"], "d": ["1970-01-02", "1970-01-01"]})
    columns = prepared_columns(rows, [NUMBER, CITY, DAY], LearntFiles())
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "n": [1.0, 2.0],
        "c": [None, "Rome"],
        "d": [86_400.0, 0.0],
    }


def test_records_load_neither_arrow_nor_onnx_nor_numpy() -> None:
    """The server and the check of a spec read them."""
    code = "import sys, models.inputs.records; print(*{'pyarrow', 'onnx', 'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
