"""A stage's table is checked from its file: labelled predictions, the last rows, are not the source's."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.validation.expectations import ExpectationCheck
from tasks.tools.table_checks import check_raw, source_rows


def test_labelled_predictions_are_left_out_of_the_sources_rows(tmp_path: Path) -> None:
    raw = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0, 99.0]}), raw)
    check = ExpectationCheck(
        expectation="column_max_to_be_between",
        arguments={"column": "x", "max_value": 10},
        severity="reject",
        origin="spec",
    )
    labelled = np.array([2])
    assert source_rows(raw, labelled).column("x").to_pylist() == [1.0, 2.0]
    assert check_raw(raw, labelled, [check], "tiny", tmp_path, tmp_path).report["success"]
    assert not check_raw(raw, labelled[:0], [check], "tiny", tmp_path, tmp_path).report["success"]
