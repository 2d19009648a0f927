"""Training methods on two real ranks: killed on the way, each ends with the bits of a run that was never killed."""

import signal

import psutil
import pytest
from safetensors.torch import load_file

from models.training.job import WEIGHTS_FILE
from models.training.optimisation.fine_tuning import origin_of
from models.training.rank import run_job
from tests.wide import wide

pytestmark = pytest.mark.integration


METHODS = {
    "stages": {"pretrain": {"epochs": 2}, "pseudo_labels": {"confidence": 0.6}, "ema": 0.9, "unlabelled": 40},
    "plateau": {"schedule": "plateau", "plateau_patience": 1, "optimiser": "muon", "augment": {"noise": 0.1}},
}


def kill_one_at(pool, stages):
    """Kills a rank after the first epoch of each stage named; returns what to hear epochs with, and the kills."""
    kills = []

    def hear(epoch):
        if epoch.stage in stages and epoch.epoch == 1:
            alive = psutil.Process(pool._fork_server.pid).children(recursive=True)
            leaves = [p for p in alive if p.status() != psutil.STATUS_ZOMBIE and not p.children()]
            kills.append(leaves[-1].pid)
            leaves[-1].send_signal(signal.SIGKILL)
        return True

    return hear, kills


@pytest.mark.parametrize(
    ("method", "stages"), [wide("stages", ("pretrain", "teacher-1", "train")), wide("plateau", ("train",))]
)
def test_killed_ranks_end_with_the_same_bits(pool, make_job, method, stages):
    train = {"epochs": 4, "count": 120, "ranks": 2, "arguments": {"hidden": 8}, **METHODS[method]}
    expected = pool.run(make_job(folder="whole", **train))
    hear, kills = kill_one_at(pool, stages)
    result = pool.run(make_job(folder="killed", **train), hear)
    assert len(kills) == len(stages) == result.restarts
    assert result.weights_sha256 == expected.weights_sha256
    assert result.before == expected.before


@pytest.mark.parametrize("parallel", ["ddp", wide("fsdp")])
def test_frozen_layers_and_the_mean_of_the_weights_on_two_ranks(pool, make_job, parallel):
    """As on one rank but for the order of sums; what is frozen stays to the bit."""
    arguments = {"hidden": 16, "dropout": 0.0, "norm": "layer"}
    old = make_job(folder="old", arguments=arguments)
    run_job(old)
    start = origin_of(old.folder / WEIGHTS_FILE, "version 1")
    asked = {"start": {"freeze": ["embeddings.*", "trunk.first"]}, "ema": 0.5, "optimiser": "sgd", "epochs": 2}
    asked |= {"batch": 40, "arguments": arguments, "job": {"start": start}}
    one = pool.run(make_job(folder="one", **asked))
    two = make_job(folder="two", ranks=2, parallel=parallel, **asked)
    result = pool.run(two)
    for a, b in zip(one.epochs, result.epochs, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=2e-6)
        assert a["val_loss"] == pytest.approx(b["val_loss"], rel=2e-6)
    before, after = load_file(start.weights), load_file(two.folder / WEIGHTS_FILE)
    held = [name for name in before if name.startswith(("embeddings", "trunk.first"))]
    assert all(before[name].equal(after[name]) for name in held)
    assert not before["trunk.head.weight"].equal(after["trunk.head.weight"])


def test_pretraining_under_fsdp_follows_one_rank(pool, make_job):
    asked = {"arguments": {"hidden": 16, "dropout": 0.0, "norm": "layer"}, "optimiser": "sgd", "batch": 40, "epochs": 1}
    heard = {"one": [], "two": []}
    for folder, ranks in (("one", 1), ("two", 2)):
        job = make_job(folder=folder, ranks=ranks, parallel="fsdp", pretrain={"epochs": 2}, **asked)
        pool.run(job, lambda epoch, folder=folder: heard[folder].append(epoch) or True)
    stages = [[epoch.stage for epoch in heard[folder]] for folder in heard]
    assert stages[0] == stages[1] == ["pretrain", "pretrain", "train"]
    # Ranks hide other parts of their examples than one rank does, and validate on the same.
    losses = [heard[folder][1].values["val_pretrain_loss"] for folder in heard]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


def test_a_batch_found_by_one_rank_is_that_of_all(pool, make_job):
    result = pool.run(make_job(count=1200, ranks=2, batch="auto", epochs=1, arguments={"hidden": 8}))
    found = result.before["batch"]
    assert found["batch"] == 2 * found["micro_batch"] == result.environment["batch"]
