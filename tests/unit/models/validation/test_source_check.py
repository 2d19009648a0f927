"""The columns that expectations name are in the source."""

import pytest

from models.errors import DataError
from models.project_spec.block import Expectation
from models.project_spec.blocks import Data
from models.validation.source_check import check_source


def test_an_expectation_of_a_column_that_a_file_lacks_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    unique = [Expectation(expect="column_values_to_be_unique", arguments={"column": name}) for name in ("x", "yy")]
    check_source(Data(source="a.csv", target="y", expectations=unique[:1]), tmp_path)
    with pytest.raises(DataError, match=r"data.expectations.1.arguments: no column 'yy'.*did you mean 'y'"):
        check_source(Data(source="a.csv", target="y", expectations=unique), tmp_path)


def test_the_header_that_a_row_tells_is_held_against_expectations(tmp_path):
    (tmp_path / "own.py").write_text("def read(): return 1\nSOURCE = {'read': read, 'header': ['x', 'y']}\n")
    unique = [Expectation(expect="column_values_to_be_unique", arguments={"column": "yy"})]
    with pytest.raises(DataError, match=r"no column 'yy'.*did you mean 'y'"):
        check_source(Data(source="./own.py:SOURCE", target="y", expectations=unique), tmp_path)
