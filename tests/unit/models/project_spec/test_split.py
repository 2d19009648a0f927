"""The block `data.split`: which splits deal single rows, and what `equal_rows` is for."""

import pytest
from pydantic import ValidationError

from models.project_spec.split import Split


@pytest.mark.parametrize(
    ("split", "deals"),
    [
        ({}, True),
        ({"by": "stratified"}, True),
        ({"by": "random", "column": "k"}, False),
        ({"by": "group", "column": "g"}, False),
        ({"by": "position"}, False),
    ],
)
def test_equal_rows_are_for_a_split_that_deals_single_rows(split, deals):
    assert Split(**split).deals_rows is deals
    if deals:
        assert Split(**split, equal_rows="apart").equal_rows == "apart"
    else:
        with pytest.raises(ValidationError, match="equal_rows is for a split by random or stratified without `column`"):
            Split(**split, equal_rows="together")
