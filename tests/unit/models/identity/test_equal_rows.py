"""Which rows are equal, whether that is no coincidence, and which unit each is of."""

import numpy as np
import pyarrow as pa
import pytest

from models.identity.equal_rows import equal_groups, identify_rows, units_of_copies, with_equal_rows
from models.identity.equal_share import EqualRows
from models.project_spec.blocks import Spec

TABLE = pa.table({"a": [1.0, 2.0, 1.0, None, None], "b": ["x", "y", "x", "x", "x"], "id": [1, 2, 3, 4, 5]})


def test_rows_that_agree_in_the_compared_columns_are_a_group_numbered_by_its_first_row():
    assert equal_groups(TABLE, ["a", "b"]).tolist() == [0, 1, 0, 2, 2]
    assert equal_groups(TABLE, ["a", "b", "id"]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("values", "identified"),
    [([np.arange(100) % 2], False), ([np.arange(100), np.arange(100) % 50], False), ([np.arange(100)] * 2, True)],
)
def test_columns_identify_rows_if_there_are_more_combinations_than_pairs_of_rows(values, identified):
    table = pa.table({f"c{number}": each for number, each in enumerate(values)})
    assert identify_rows(table, table.column_names) is identified


def test_a_value_that_many_rows_have_is_no_copy():
    groups = np.r_[np.zeros(30, int), np.arange(1, 91), np.arange(1, 11)]
    units = units_of_copies(groups)
    assert len(np.unique(units[:30])) == 30
    assert np.array_equal(units[30:40], units[120:])
    assert units_of_copies(np.arange(50)) is None
    assert units_of_copies(np.r_[np.zeros(30, int), np.arange(1, 91)]) is None


def test_the_share_and_the_rule_are_in_words():
    equal = EqualRows(num_rows=1200, identified=False, together=False, num_in_training=3, num_test=12)
    assert equal.share == 0.25
    assert equal.text == (
        "1,200, apart; 25.0% of the test rows equal a training or validation row; the columns have too few values to "
        "tell rows apart"
    )
    spec = Spec.model_validate({"name": "t", "data": {"source": "d.csv", "target": "y"}})
    assert with_equal_rows(spec, None) is spec
    assert with_equal_rows(spec, "apart").data.split.equal_rows == "apart"
