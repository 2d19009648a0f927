"""Held-out rows whose categories are new to the model are told."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.prepare import prepare
from models.project_spec.blocks import Spec
from models.validation.unseen_categories import unseen_categories


def told(folder: Path, test: list[str | None], **data: object) -> list[str]:
    """Of 80 rows whose `shop` is one of two, then the test rows: the split is by the order of `day`."""
    shops = [*(["here", "there"] * 40), *test]
    day = list(range(len(shops)))
    columns = {"shop": shops, "day": day, "x": [each % 7 for each in day], "y": [each % 2 for each in day]}
    pq.write_table(pa.table(columns), folder / "raw.parquet")
    split = {"by": "time", "column": "day", "validation": 10 / len(shops), "test": len(test) / len(shops)}
    spec = Spec.model_validate(
        {"name": "tiny", "data": {"source": "raw.parquet", "target": "y", "split": split, **data}}
    )
    return unseen_categories(folder / "out", prepare(folder / "raw.parquet", spec, folder, folder / "out"))


def test_a_column_mostly_new_in_the_test_rows_is_told(tmp_path: Path) -> None:
    (text,) = told(tmp_path, ["new"] * 6 + ["here"] * 4 + [None] * 5)
    assert text.startswith("column 'shop': 6 of 10 test rows hold a value that training has not, or too seldom")


@pytest.mark.parametrize("test", [["new"] * 5 + ["here"] * 5, [None] * 9 + ["here"], ["there"] * 10])
def test_half_of_them_or_less_is_as_usual(tmp_path: Path, test: list[str | None]) -> None:
    assert told(tmp_path, test) == []


def test_without_categories_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert told(tmp_path, ["new"] * 10, features={"drop": ["shop"]}) == []
