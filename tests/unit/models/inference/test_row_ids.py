"""Made ids are UUIDs of version 7, sort by time, and come again when the work is done again."""

import uuid

import pyarrow as pa
import pytest

from models.errors import DataError
from models.identity.hashing import SortedHashSet
from models.inference.row_ids import own_ids, row_ids


def test_ids_are_uuids_of_version_7_with_the_time_they_were_begun():
    ids = row_ids("work", 1_700_000_000_000, 0, 1000)
    assert len(set(ids)) == 1000
    for one in map(uuid.UUID, ids):
        assert (one.version, one.variant) == (7, uuid.RFC_4122)
        assert one.int >> 80 == 1_700_000_000_000
    assert max(ids) < min(row_ids("work", 1_700_000_000_001, 0, 1000))


def test_the_same_row_of_the_same_work_has_its_id_again():
    ids = row_ids("work", 5, 0, 10)
    assert row_ids("work", 5, 4, 3) == ids[4:7]
    assert set(row_ids("other", 5, 0, 10)) & set(ids) == set()


def test_given_ids_are_text_and_each_names_one_row():
    seen = SortedHashSet()
    assert own_ids(pa.chunked_array([[7.0, 8.0]]), seen, 1, "new.csv", "tag").to_pylist() == ["7", "8"]
    with pytest.raises(DataError, match=r"new\.csv, row 4, column 'tag': '8' names an earlier row too"):
        own_ids(pa.chunked_array([["x", "8"]]), seen, 3, "new.csv", "tag")
    with pytest.raises(DataError, match="row 6, column 'tag': no id"):
        own_ids(pa.chunked_array([["y", None]]), seen, 5, "new.csv", "tag")
