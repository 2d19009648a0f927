"""A column of text that is numbers but for a few cells is told."""

import pyarrow as pa
import pytest

from models.project_spec.blocks import Data
from models.validation.mixed_columns import odd_cells

NUMBERS = [str(number / 4) for number in range(98)]


def odd(values: list[str | None], **features: object) -> list[str]:
    data = Data.model_validate({"source": "x.csv", "target": "y", "features": features})
    return odd_cells(pa.table({"a": values, "y": ["u"] * len(values), "n": range(len(values))}), data)


def test_the_first_odd_cell_is_told_with_its_row() -> None:
    (told,) = odd([*NUMBERS[:7], None, "oops", *NUMBERS[7:], "-"])
    assert told.startswith("column 'a': 98 of 100 values are numbers, row 9 is 'oops': read as text")


@pytest.mark.parametrize(
    "values", [NUMBERS, [None] * 9, ["u", "v"] * 9, [*NUMBERS[:9], "a", "b"], ["1e5", " -3 ", "+.5", "7."]]
)
def test_all_numbers_or_many_words_are_as_meant(values: list[str | None]) -> None:
    assert odd(values) == []


@pytest.mark.parametrize("features", [{"drop": ["a"]}, {"kinds": {"a": "categorical"}}, {"columns": ["n"]}])
def test_a_column_that_the_spec_decides_about_is_left_alone(features: dict[str, object]) -> None:
    assert odd([*NUMBERS, "oops"], **features) == []


def test_the_names_of_the_columns_are_read_once_however_many_there_are() -> None:
    class Counting:
        reads = 0
        table = pa.table({f"c{number}": ["1", "x"] for number in range(300)})

        @property
        def column_names(self) -> list[str]:
            self.reads += 1
            return self.table.column_names

        def column(self, name: str) -> pa.ChunkedArray:
            return self.table.column(name)

    wide = Counting()
    odd_cells(wide, Data.model_validate({"source": "x.csv", "target": "y"}))
    assert wide.reads == 1
