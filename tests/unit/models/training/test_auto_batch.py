import pytest
import torch

from models.distributed.world import World
from models.errors import TrainingError
from models.training import auto_batch as fitting
from models.training.auto_batch import find_batch, is_out_of_memory, largest


def tries(limit, speed=lambda size: float(size)):
    seen = []

    def attempt(size):
        seen.append(size)
        return speed(size) if size <= limit else None

    return attempt, seen


@pytest.mark.parametrize(("limit", "expected"), [(10_000, 512), (300, 256), (64, 64), (20, 16), (2, 2)])
def test_doubles_to_the_most_and_halves_to_what_fits(limit, expected):
    attempt, _ = tries(limit)
    assert largest(64, 1000, attempt) == expected


def test_no_larger_than_what_pays():
    attempt, seen = tries(10_000, lambda size: min(size, 256) * 1.0)
    assert largest(64, 4096, attempt) == 256
    assert seen == [64, 128, 256, 512]


def test_a_net_that_never_fits_is_told():
    attempt, _ = tries(0)
    with pytest.raises(TrainingError, match="smaller net"):
        largest(64, 1000, attempt)


def test_what_counts_as_out_of_memory():
    assert is_out_of_memory(torch.OutOfMemoryError("x"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"))
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert is_out_of_memory(caught.value)


def test_the_batch_is_that_of_all_ranks_and_its_trials_leave_nothing(make_job, monkeypatch):
    job = make_job(arguments={"hidden": 8}, batch="auto", accumulate=2, count=2000)
    monkeypatch.setattr(fitting, "_timed", lambda trial, device: float(trial.train.batch))
    found = find_batch(job, World())
    assert found == {"batch": 62, "micro_batch": 31, "tries": 1} or found["micro_batch"] * 2 == found["batch"]
    assert found["batch"] <= 2000 // 16
    assert not job.folder.exists()


def test_a_step_that_runs_out_of_memory_is_survived(make_job, monkeypatch):
    """An own allocation limit stands for a full device: the real step raises what torch's allocator raises."""
    job = make_job(arguments={"hidden": 8}, batch="auto", count=4000)
    opened = fitting.open_session

    def limited(trial, world):
        if trial.train.batch > 128:
            torch.empty(1 << 60)
        return opened(trial, world)

    monkeypatch.setattr(fitting, "open_session", limited)
    monkeypatch.setattr(fitting, "WORTH", 0.0)
    assert find_batch(job, World())["batch"] == 128


def test_a_table_that_is_streamed_is_tried_in_the_order_of_its_shards(make_job, monkeypatch):
    job = make_job(arguments={"hidden": 8}, batch="auto", count=60_000, memory_mb=1)
    assert job.tensors["train"].stat().st_size > 1 << 20
    monkeypatch.setattr(fitting, "FIRST", 2048)
    assert find_batch(job, World())["batch"] >= 2048
