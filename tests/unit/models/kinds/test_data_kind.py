"""Every kind of data has a row under its own name."""

import pytest

from models.kinds.data_kind import DATA_KINDS, KIND_NAMES, Kind, PerDataKind


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_row_stands_under_its_own_name(kind: Kind) -> None:
    assert DATA_KINDS[kind].name == kind


def test_tables_have_a_key_for_every_kind() -> None:
    assert PerDataKind.__required_keys__ == {*KIND_NAMES}
