import threading
import time

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from models.distributed.world import World
from models.errors import StoreError
from models.training.checkpoints import saver as module
from models.training.checkpoints.checkpoint import newest
from models.training.checkpoints.saver import CheckpointSaver, own_part
from models.training.checkpoints.shards import StoredCheckpoint
from tests.ranks import on_ranks


def read(path, name):
    room = {name: torch.empty(StoredCheckpoint(path).shapes[name])}
    StoredCheckpoint(path).load(room)
    return room[name].tolist()


@pytest.mark.parametrize("in_background", [True, False])
def test_what_is_written_is_the_state_of_the_moment(tmp_path, monkeypatch, in_background):
    may_write, original = threading.Event(), module.write_alone

    def late(*arguments):
        assert may_write.wait(30)
        return original(*arguments)

    monkeypatch.setattr(module, "write_alone", late)
    saver = CheckpointSaver(tmp_path, World(), in_background, 2)
    weight = torch.ones(3)
    if not in_background:
        may_write.set()
    saver.save(1, {}, {"net/w": weight}, {"w": torch.zeros(1)})
    assert saver.is_busy == in_background
    weight += 1
    may_write.set()
    saver.settle()
    assert read(saver.last, "net/w") == [1, 1, 1]
    saver.save(2, {}, {"net/w": weight}, None)
    saver.settle()
    assert read(newest(tmp_path, World()), "net/w") == [2, 2, 2]
    assert read(newest(tmp_path, World()), "best/w") == [0], "linked from the checkpoint before"
    assert saver.cost_s > 0


def test_a_write_that_fails_is_told_by_the_next_call_and_the_one_after_goes_on(tmp_path, monkeypatch):
    saver = CheckpointSaver(tmp_path, World(), in_background=True, keep=2)

    def full(*arguments):
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(module, "write_alone", full)
        saver.save(1, {}, {"net/w": torch.ones(1)}, {})
        saver._thread.join()
    with pytest.raises(StoreError, match="disk is full"):
        saver.save(2, {}, {"net/w": torch.ones(1)}, {})
    saver.save(3, {}, {"net/w": torch.ones(1)}, {})
    saver.settle()
    assert newest(tmp_path, World()).name.endswith("3")


def test_what_was_begun_is_whole_before_a_failed_training_is_told(tmp_path, monkeypatch):
    original = module.write_alone

    def slow(*arguments):
        time.sleep(0.3)
        return original(*arguments)

    monkeypatch.setattr(module, "write_alone", slow)

    def fail():
        with CheckpointSaver(tmp_path, World(), in_background=True, keep=2) as saver:
            saver.save(1, {}, {"net/w": torch.ones(1)}, {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert newest(tmp_path, World()) is not None


def test_ranks_write_together_beside_the_training(tmp_path):
    """While the checkpoint is written the ranks use their own group for other things."""

    def work(world):
        saver = CheckpointSaver(tmp_path / "checkpoints", world, in_background=True, keep=2)
        for step in range(1, 4):
            tensors = {"net/w": torch.full((100_000,), float(step)), f"random/{world.rank}/x": torch.ones(1)}
            saver.save(step, {"step": step}, tensors, {"w": torch.full((2,), float(step))} if world.is_first else {})
            for _ in range(20):
                world.total(torch.ones(10))
        saver.settle()
        return newest(tmp_path / "checkpoints", world)

    path = on_ranks(2, tmp_path, work)[0]
    assert path.name.endswith("3")
    assert read(path, "net/w") == [3.0] * 100_000
    assert read(path, "best/w") == [3, 3]
    assert read(path, "random/1/x") == [1]


def test_each_rank_keeps_what_no_rank_before_it_holds(tmp_path):
    def work(world):
        shard = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        return set(own_part({"all": torch.ones(1), f"only-{world.rank}": torch.ones(1), "part": shard}, world))

    assert on_ranks(2, tmp_path, work) == [{"all", "only-0", "part"}, {"only-1", "part"}]


def test_the_best_weights_come_together_on_the_first_rank(tmp_path):
    def work(world):
        saver = CheckpointSaver(tmp_path / "checkpoints", world, in_background=True, keep=2)
        shard = distribute_tensor(torch.arange(5.0), init_device_mesh("cpu", (2,)), [Shard(0)])
        joined = saver.join_best({f"stage-{world.rank}": torch.ones(1), "part": shard})
        replicated = saver.join_best({"w": torch.ones(1)} if world.is_first else {})
        return {name: tensor.tolist() for name, tensor in (joined | replicated).items()}

    first, second = on_ranks(2, tmp_path, work)
    assert first == {"stage-0": [1], "stage-1": [1], "part": [0, 1, 2, 3, 4], "w": [1]}
    assert second == {}
    assert not (tmp_path / ".best").exists()
