"""The columns that a spec names are there."""

import pytest

from models.data.header import check_names
from models.errors import DataError
from models.project_spec.blocks import Data


def test_every_column_that_the_spec_names_must_be_there() -> None:
    data = Data.model_validate({"source": "a.csv", "target": "y", "features": {"columns": ["x", "z"]}})
    check_names(["x", "y", "z"], data)
    with pytest.raises(DataError, match=r"data.features.columns: no column 'z' in the data, which has x, y"):
        check_names(["x", "y"], data)
