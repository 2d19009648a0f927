from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models import scratch
from models.scratch import arrays_in


def test_large_arrays_and_columns_are_themselves_and_keep_no_file_open(tmp_path, monkeypatch):
    monkeypatch.setattr("models.scratch.PART", 4)
    before = len([*Path("/dev/fd").iterdir()])
    texts = pa.chunked_array([["a", None, "b"], ["", "a", "c"] * 2])
    with arrays_in(tmp_path, large=1):
        numbers = [pa.array(scratch.filled(9, np.float64, lambda part: part.start)) for _ in range(20)]
        columns = [scratch.by_parts(texts, lambda part: part.drop_null()) for _ in range(20)]
        blocks = [scratch.joined((np.arange(n) for n in sizes), np.int64) for sizes in ([], [2], [3, 0, 2])]
        ordered = scratch.unique(np.array([5, 1, 5, 2, 1, 9, 9]))
    assert len([*Path("/dev/fd").iterdir()]) == before
    assert not [*tmp_path.iterdir()]
    assert all(column.to_pylist() == [0, 0, 0, 0, 4, 4, 4, 4, 8] for column in numbers)
    assert all(column.to_pylist() == texts.drop_null().to_pylist() for column in columns)
    assert [block.tolist() for block in blocks] == [[], [0, 1], [0, 1, 2, 0, 1]]
    assert ordered.tolist() == [1, 2, 5, 9]


def test_the_deviation_has_the_bits_of_numpy(monkeypatch):
    numbers = np.random.default_rng(0).normal(1e3, 7, 5_001)
    for part in (7, 300):
        monkeypatch.setattr("models.scratch.PART", part)
        assert [scratch.deviation(numbers[:num]) for num in (3, 150, 5_001)] == [
            numbers[:num].std() for num in (3, 150, 5_001)
        ]
    assert np.isnan(scratch.deviation(np.r_[numbers, np.nan]))


def test_a_table_with_more_columns_than_files_is_itself(tmp_path):
    texts = pa.array(["a", None, "b"] * 3)
    columns = {f"x{place}": texts.dictionary_encode() if place % 2 else pa.array(range(9)) for place in range(70)}
    for num in (0, 1, 32, 70):
        table = pa.table(dict([*columns.items()][:num])).replace_schema_metadata({"who": "me"})
        mapped = scratch.mapped(iter(table.to_batches(4)), table.schema, tmp_path)
        assert mapped.equals(table, check_metadata=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("num_groups", [3, 5])
def test_groups_of_a_large_table_are_those_of_a_small_one(tmp_path, monkeypatch, num_groups):
    table = pa.table({"text": [f"v{place % 4}" for place in range(40)], "place": range(40)})
    numbers = (np.arange(40, dtype=np.int32) * 7) % 6  # some rows are of no group
    small = [*scratch.groups(table, numbers, num_groups)]
    monkeypatch.setattr("models.scratch.PART", 8)
    monkeypatch.setattr("models.scratch._GROUP_FILES", 4)
    with scratch.arrays_in(tmp_path):
        large = [*scratch.groups(table, numbers, num_groups)]
    assert [group.to_pylist() for group in large] == [group.to_pylist() for group in small]
    assert sorted(place for group in small for place in group["place"].to_pylist()) == [
        place for place in range(40) if numbers[place] < num_groups
    ]
    assert not [*tmp_path.iterdir()]
