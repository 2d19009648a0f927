"""Labels as people give them: written as the target's classes are, refused with their row, one for each id."""

import pyarrow as pa
import pytest

from models.data.preparation import Preparation, TextInput
from models.data.target_encoding import TargetEncoding
from models.errors import DataError, UsageError
from models.validation.labels import checked_labels


def of(target: TargetEncoding, task: str = "binary") -> Preparation:
    return Preparation(kind="table", task=task, target=target)


SPECIES = of(TargetEncoding(name="species", classes=["Adelie", "Gentoo"], dtype="string"))
LATE = of(TargetEncoding(name="late", classes=["false", "true"], dtype="boolean"))
STARS = of(TargetEncoding(name="stars", classes=["1", "5"], dtype="integer"))
PRICE = of(TargetEncoding(name="price"), "regression")


def checked(table: dict, preparation: Preparation = SPECIES, id_column: str = "id") -> list[tuple[str, str]]:
    found = checked_labels(pa.table(table), id_column, preparation, "labels.csv")
    return [tuple(row.values()) for row in found.to_pylist()]


def test_the_targets_name_or_label_is_the_column():
    assert checked({"id": ["a"], "species": ["Gentoo"]}) == [("a", "Gentoo")]
    assert checked({"tag": [7], "label": ["Gentoo"]}, id_column="tag") == [("7", "Gentoo")]
    assert checked({"id": ["a"], "label": ["no class"], "species": ["Adelie"]}) == [("a", "Adelie")]


def test_empty_labels_are_passed_over_and_repeated_ones_count_once():
    found = checked({"id": ["a", "b", "a", None], "label": ["Gentoo", None, "Gentoo", ""]})
    assert found == [("a", "Gentoo")]


@pytest.mark.parametrize(
    ("preparation", "values", "expected"),
    [
        (LATE, ["True", "0", "no", "TRUE"], ["true", "false", "false", "true"]),
        (LATE, [True, False], ["true", "false"]),
        (STARS, ["5.0", "1"], ["5", "1"]),
        (STARS, [5.0, 1.0], ["5", "1"]),
        (PRICE, ["1e3", "0.1"], ["1000.0", "0.1"]),
        (PRICE, [1, 2], ["1.0", "2.0"]),
    ],
)
def test_a_label_is_written_as_the_target_is(preparation, values, expected):
    found = checked({"id": [str(n) for n in range(len(values))], "label": values}, preparation)
    assert [label for _, label in found] == expected


@pytest.mark.parametrize(
    ("table", "preparation", "told"),
    [
        ({"id": ["a", "b"], "label": ["", "Gento"]}, SPECIES, r"labels\.csv, row 2: got label 'Gento'.*mean 'Gentoo'"),
        ({"id": ["a"], "label": ["7"]}, LATE, "row 1: got label '7' of 'late', expected one of false, true"),
        ({"id": ["a"], "label": ["dear"]}, PRICE, "got label 'dear' of 'price', expected a number"),
        ({"id": ["a"], "label": ["inf"]}, PRICE, "expected a number"),
        ({"id": ["a", None], "label": ["Gentoo", "Gentoo"]}, SPECIES, "row 2, column 'id': no id"),
        ({"id": ["a", "b", "a"], "label": ["Gentoo", "Adelie", "Adelie"]}, SPECIES, "'Adelie' here and 'Gentoo' in"),
        ({"id": ["a"], "spezies": ["Gentoo"]}, SPECIES, "expected a column 'species' or 'label'.*mean 'spezies'"),
        ({"key": ["a"], "label": ["Gentoo"]}, SPECIES, "no column 'id'"),
        ({"id": ["a"], "label": [{"is": "Gentoo"}]}, SPECIES, "of type struct.*expected text, numbers or booleans"),
        ({"id": ["a"], "label": ["Gentoo"], "probability_Gentoo": [0.9]}, SPECIES, "these are predictions"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_row_and_cure(table, preparation, told):
    with pytest.raises(DataError, match=told):
        checked(table, preparation)


def test_a_text_has_no_labels():
    characters = TextInput(column="text", length=2, stride=2, alphabet="ab")
    text = Preparation(kind="text", task="language", target=TargetEncoding(name="next"), characters=characters)
    with pytest.raises(UsageError, match="no labels"):
        checked({"id": ["a"], "label": ["b"]}, text)


def test_a_whole_number_beyond_exact_floats_is_taken():
    assert checked({"id": ["a"], "label": [2**53 + 1]}, PRICE) == [("a", repr(float(2**53)))]
