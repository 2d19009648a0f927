"""Classes that differ by case or spaces alone are told."""

import pyarrow as pa

from models.project_spec.blocks import Data
from models.validation.alike_classes import alike_classes


def test_classes_that_are_one_but_for_case_and_spaces_are_told_for_targets_alone() -> None:
    table = pa.table({"y": ["Yes", "yes", " YES", "No", None], "x": ["a", "A", "a", "A", "a"]})
    (message,) = alike_classes(table, Data(source="a.csv", target="y"))
    assert message == (
        "target 'y': 4 classes, of which some differ by case or spaces alone, such as 'Yes' and 'yes' and ' YES': each "
        "is a class of its own; write them alike in the source"
    )


def test_other_classes_and_numbers_are_not() -> None:
    table = pa.table({"y": ["Yes", "No"], "n": [1, 2], "v": [None, None]})
    for name in ("y", "n", "v", "gone"):
        assert alike_classes(table, Data(source="a.csv", target=name)) == []
