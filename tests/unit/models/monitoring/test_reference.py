from pathlib import Path

import pytest

from models.errors import StoreError
from models.files import write_json
from models.monitoring.reference import REFERENCE_FILE, Reference
from tests.unit.models.monitoring.conftest import reference


def test_a_reference_is_written_as_text_and_read_back(tmp_path: Path) -> None:
    made = reference()
    assert made.save(tmp_path).name == REFERENCE_FILE
    read = Reference.load(tmp_path)
    assert read is not None
    assert read.model_dump() == made.model_dump()
    assert read.columns[0].num_rows == 20_000


def test_a_version_without_one_has_none_and_a_broken_one_is_said(tmp_path: Path) -> None:
    assert Reference.load(tmp_path) is None
    (tmp_path / REFERENCE_FILE).write_text('{"task"')
    with pytest.raises(StoreError, match=REFERENCE_FILE):
        Reference.load(tmp_path)


def test_one_without_some_columns_compares_the_others() -> None:
    whole = reference()
    assert whole.without([]) is whole.without(["nobody"]) is whole
    part = whole.without(["wind", "colour"])
    assert [column.name for column in part.columns] == ["gust"]
    assert part.scores == whole.scores


def test_a_version_of_a_release_that_watched_correlations_is_read(tmp_path: Path) -> None:
    document = reference().model_dump(mode="json")
    document["gram"] = [[1.0]]
    document["columns"][0]["bins"]["ranks"] = [0.0]
    write_json(tmp_path / REFERENCE_FILE, document)
    read = Reference.load(tmp_path)
    assert read is not None
    assert read.model_dump() == reference().model_dump()
