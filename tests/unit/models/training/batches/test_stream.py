import itertools
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from models.errors import DataError
from models.training.batches.stream import Shards, Stream
from models.training.rank import run_job
from tests.wide import examples

ROWS = 97


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "rows.safetensors"
    save_file({"x": np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2), "target": np.arange(ROWS)}, path)
    return path


def steps(batch, start=0):
    return [slice(low, min(low + batch, ROWS)) for low in range(start, ROWS, batch)]


def seen(stream, order, step):
    """The rows that a step's slice stands for, as the buffers have them."""
    at = stream.at(order[step])
    assert torch.equal(stream.buffers["x"][at, 0], stream.buffers["target"][at] * 2.0)
    return stream.buffers["target"][at].tolist()


@examples(40)
@given(shard_rows=st.integers(1, 40), group_shards=st.integers(2, 8), data=st.data())
def test_every_row_comes_once_an_epoch_in_every_epochs_own_order(file, shard_rows, group_shards, data):
    shards = Shards(ROWS, shard_rows, group_shards, seed=3)
    batch = data.draw(st.integers(1, min(ROWS, shard_rows * (group_shards - 1))), label="batch")
    stream = Stream(file, shards)
    orders = []
    for epoch in (0, 1, 2):
        order = stream.order(epoch)
        orders.append(list(itertools.chain.from_iterable(seen(stream, order, step) for step in steps(batch))))
        assert sorted(orders[-1]) == list(range(ROWS))
    if shards.num_shards > 1 or shard_rows > 10:
        assert orders[0] != orders[1]


@examples(30)
@given(
    shard_rows=st.integers(5, 30), group_shards=st.integers(2, 4), skipped=st.integers(0, 18), epoch=st.integers(0, 3)
)
def test_an_epoch_taken_up_anywhere_goes_on_with_the_same_rows(file, shard_rows, group_shards, skipped, epoch):
    shards = Shards(ROWS, shard_rows, group_shards, seed=1)
    whole = Stream(file, shards)
    first = [seen(whole, whole.order(epoch), step) for step in steps(5)]
    late = Stream(file, shards)
    assert [seen(late, late.order(epoch), step) for step in steps(5, skipped * 5)] == first[skipped:]


def test_rows_are_read_in_the_files_order_for_validation_in_the_middle_of_training(file):
    stream = Stream(file, Shards(ROWS, 4, 3, seed=0))
    order = stream.order(0)
    before = seen(stream, order, slice(0, 10))
    for low in range(0, ROWS, 10):
        rows = torch.arange(low, min(low + 10, ROWS))
        assert stream.buffers["target"][stream.at(rows)].tolist() == rows.tolist()
    again = stream.order(0)
    assert seen(stream, again, slice(0, 10)) == before
    assert stream.at(torch.empty(0, dtype=torch.int64)).tolist() == []


def test_rows_of_far_off_places_meet_in_a_batch(file):
    stream = Stream(file, Shards.fitting(ROWS, 16, memory_bytes=32 * 16 * 2, least_group=10, seed=0))
    assert stream.shards.shard_rows == 2
    rows = seen(stream, stream.order(0), slice(0, 16))
    assert max(rows) - min(rows) > ROWS // 2


@pytest.mark.parametrize("rows", [1_000, 10_000_000])
def test_memory_goes_by_the_budget_not_by_the_table(rows):
    shards = Shards.fitting(rows, row_bytes=100, memory_bytes=1 << 20, least_group=64, seed=0)
    assert 2 * shards.group_shards * shards.shard_rows * 100 <= 1 << 20


def test_a_batch_larger_than_the_budget_still_fits_in_a_group():
    shards = Shards.fitting(10_000, row_bytes=100, memory_bytes=100, least_group=512, seed=0)
    assert (shards.group_shards - 1) * shards.shard_rows >= 512


def test_a_disk_that_fails_amid_an_epoch_is_told(tmp_path):
    path = tmp_path / "rows.safetensors"
    save_file({"target": np.arange(ROWS)}, path)
    stream = Stream(path, Shards(ROWS, 4, 3, seed=0))
    order = stream.order(0)
    assert len(order[0:4]) == 4
    os.truncate(path, 300)
    with pytest.raises(DataError, match=r"rows\.safetensors: cannot be read .*: remove it and run again"):
        list(map(order.__getitem__, steps(4)))


def test_a_streamed_job_learns_and_a_stopped_one_goes_on_to_the_same_bits(make_job):
    """50,000 rows are 1.8 MB: more than the 1 MB that may be held."""

    def job(folder):
        return make_job(count=50_000, folder=folder, arguments={"hidden": 8}, epochs=2, batch=400, memory_mb=1)

    whole = run_job(job("whole"))
    assert whole.value > 0.9

    class StoppedError(Exception):
        pass

    def stop(epoch):
        if epoch.epoch == 2:
            raise StoppedError
        return True

    with pytest.raises(StoppedError):
        run_job(job("stopped"), stop)
    resumed = run_job(job("stopped"))
    assert resumed.resumed_from == [225], "amid the second epoch of 125 steps"
    assert resumed.weights_sha256 == whole.weights_sha256
    mapped = run_job(make_job(count=50_000, folder="mapped", arguments={"hidden": 8}, epochs=2, batch=400))
    assert mapped.weights_sha256 != whole.weights_sha256, "the small job was streamed too, or the large one was not"
    assert mapped.value == pytest.approx(whole.value, abs=0.02)
