"""What needs all rows at once is refused where they cannot fit."""

from typing import Any

import pyarrow as pa
import pytest

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.training.costs import whole_tables
from models.training.costs.whole_tables import check_whole_table

NUMBERS = pa.schema([(f"x{number}", pa.float64()) for number in range(20)])


def spec_of(**data: Any) -> Spec:
    blocks = {"data": {"source": "rows.parquet", "target": "y", **data}, "model": {"net": "auto"}}
    return Spec.model_validate({"name": "large", **blocks})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"features": {"make": "./own.py:make"}}, r"data\.features\.make: \./own\.py:make gets all rows at once"),
        (
            {"kind": "series", "window": {"length": 4}, "split": {"by": "time", "column": "day"}},
            r"data\.kind: series is prepared as a whole",
        ),
    ],
)
def test_what_needs_the_whole_table_is_refused(
    data: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_tables, "usable_memory", lambda: 4e9)
    block = spec_of(**data).data
    check_whole_table(block, 1_000_000, NUMBERS)
    with pytest.raises(UsageError, match=message):
        check_whole_table(block, 40_000_000, NUMBERS)
    check_whole_table(spec_of().data, 40_000_000, NUMBERS)


def test_own_functions_need_what_a_frame_of_the_columns_types_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "usable_memory", lambda: 4e9)
    block = spec_of(features={"make": "./own.py:make"}).data
    for kind, rows in ((pa.int8(), 100_000_000), (pa.bool_(), 100_000_000), (pa.float32(), 25_000_000)):
        schema = pa.schema([(f"x{number}", kind) for number in range(20)])
        check_whole_table(block, rows, schema)
        with pytest.raises(UsageError, match="gets all rows at once, which needs at least 4"):
            check_whole_table(block, rows + 1_000_000, schema)
