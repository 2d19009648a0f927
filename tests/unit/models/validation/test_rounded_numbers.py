"""Values that fall together in float64 are told; those that nothing reads as a number are not."""

import pyarrow as pa
import pytest

from models.project_spec.blocks import Data
from models.validation.rounded_numbers import rounded_numbers

LARGE = [2**53, 2**53 + 1, 2**60, 5]


def messages(values: pa.Array | list[object], **data: object) -> list[str]:
    spec = Data.model_validate({"source": "x.csv", "target": "y", **data})
    return rounded_numbers(pa.table({"a": values, "y": [0.5] * len(values)}), spec)


def test_integers_that_become_one_number_are_told_with_the_cure() -> None:
    (message,) = messages(LARGE)
    assert message.startswith("column 'a': 1 of 4 values become the same number as another one")
    assert "`a: categorical` in data.features.kinds" in message


@pytest.mark.parametrize("kind", [pa.float64(), pa.uint64()])
def test_numbers_that_stay_apart_are_not_told(kind: pa.DataType) -> None:
    assert messages(pa.array([2**60, 2**61, 7, 8, 9, None], pa.uint64()).cast(kind, safe=False)) == []


@pytest.mark.parametrize(
    "data",
    [
        {"features": {"drop": ["a"]}},
        {"features": {"kinds": {"a": "categorical"}}},
        {"features": {"kinds": {"a": "numeric"}}},
        {"id": "a"},
    ],
)
def test_integers_that_no_float_reads_or_that_the_spec_decides_about_are_left_alone(data: dict[str, object]) -> None:
    assert messages(LARGE, **data) == []


@pytest.mark.parametrize("data", [{"id": "a"}, {"split": {"by": "group", "column": "a"}}])
def test_names_that_came_as_floats_may_have_been_rounded_before(data: dict[str, object]) -> None:
    (message,) = messages([2.0**60, 5.0, 6.0], **data)
    assert message.startswith("column 'a': 1 values are floats from 2^53, such as 1152921504606846976; if they")
    assert messages([2.0**60, 5.0, 6.0]) == []


def test_a_column_of_numbers_too_long_for_64_bits_is_told() -> None:
    assert "store them as texts" in messages([1e20, 2e20, 3e20, None])[0]
