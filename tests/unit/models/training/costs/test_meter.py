import subprocess
import sys
import time

import pytest
import torch

from models.data.preparation import Preparation
from models.distributed.world import World
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.training import loop
from models.training.batches.examples import open_examples
from models.training.costs.counters import device_clock
from models.training.costs.flops import count_flops
from models.training.costs.meter import Meter, open_meter
from models.training.rank import run_job


def test_an_epoch_tells_rates_costs_and_memory():
    meter = Meter(flops=1e6, tokens=10, peak=1e9)
    meter.open_epoch({})
    with meter.waiting:
        torch.ones(1000, 1000).sum()
    meter.trained()
    values = meter.close_epoch(500)
    assert values["tokens_per_s"] == pytest.approx(10 * values["samples_per_s"])
    assert values["flops"] == 5e8
    assert values["mfu"] == pytest.approx(values["samples_per_s"] * 1e6 / 1e9)
    assert 0 < values["data_wait_s"] <= 500 / values["samples_per_s"]
    assert values["device_s"] > 0
    assert values["peak_memory_mb"] > 50


def test_a_cpu_counts_its_work_and_that_of_ended_children_but_no_waiting():
    meter, start = Meter(), time.perf_counter()
    meter.open_epoch({})
    time.sleep(0.5)
    work = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-S", "-c", work], check=True)
    waited = time.perf_counter() - start
    assert 0.15 < meter.close_epoch(1)["device_s"] < waited - 0.3


def test_a_gpu_counts_as_long_as_a_process_holds_it():
    device, start = torch.device("cuda"), device_clock(torch.device("cuda"))
    time.sleep(0.05)
    assert device_clock(device) - start >= 0.05


def test_what_is_not_known_is_not_told():
    meter = Meter()
    meter.open_epoch({})
    values = meter.close_epoch(1)
    assert {"flops", "mfu", "tokens_per_s"} & set(values) == set()


def test_each_epoch_begins_at_nothing():
    meter = Meter()
    meter.open_epoch({"device": 50.0, "training": 40.0, "waiting": 30.0, "joules": 0.0})
    assert meter.so_far()["device"] > 50
    assert meter.close_epoch(80)["samples_per_s"] == pytest.approx(2, rel=0.1)
    meter.open_epoch({})
    assert meter.close_epoch(80)["data_wait_s"] == 0


def test_a_net_is_counted_when_the_meter_is_opened(make_job):
    job = make_job(arguments={"hidden": 8}, job={"peak_flops_per_s": 1e10})
    preparation = Preparation.load(job.prepared)
    train, _ = open_examples(job, preparation)
    net = build_net(job.model, Sizes.of(preparation), job.project)
    meter = open_meter(job, World(), net, train)
    assert meter.flops == count_flops(net, train.gather(torch.arange(3)))
    assert meter.peak == 1e10
    assert meter.tokens == 0


def test_a_job_says_what_it_cost(make_job):
    result = run_job(make_job(arguments={"hidden": 8}, job={"peak_flops_per_s": 1e10}))
    costs = result.costs
    assert costs is not None
    assert costs.flops == sum(epoch["flops"] for epoch in result.epochs)
    assert costs.mfu is not None
    assert 0 < costs.mfu < 1
    assert costs.device == "cpu"


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_a_resumed_epoch_counts_what_was_spent_on_it_before(make_job, monkeypatch):
    """Killed in the middle of the first epoch, whose seconds until its checkpoint were many."""
    monkeypatch.setattr(loop, "WINDOW", 2)
    job = make_job(arguments={"hidden": 8}, count=100, epochs=1, batch=20, async_checkpoints=False)
    original = Meter.so_far

    def slow(meter):
        return {**original(meter), "device": 100.0, "training": 90.0}

    def dying(session):
        checkpoint(session)
        raise Killed

    checkpoint = loop.TrainingSession.checkpoint
    with monkeypatch.context() as patched:
        patched.setattr(Meter, "so_far", slow)
        patched.setattr(loop.TrainingSession, "checkpoint", dying)
        with pytest.raises(Killed):
            run_job(job)
    result = run_job(job)
    assert 100 < result.epochs[0]["device_s"] < 200
    assert result.epochs[0]["samples_per_s"] < 100 / 90
