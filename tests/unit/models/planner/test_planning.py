import json
from pathlib import Path

import pytest

from models.planner.candidates import Candidate
from models.planner.machines import read_machine
from models.planner.memory import TrainingShape
from models.planner.planning import needed_gb, plan
from models.planner.profile import Profiler
from models.project_spec.blocks import Model
from tests.unit.models.planner.conftest import SERIES, TABLE

BASE = Candidate("ddp")
SEVEN_BILLION = {"width": 8192, "layers": 9, "heads": 64}


def test_a_small_net_takes_the_simplest_plan(make_profiler):
    found = plan(make_profiler("mlp", TABLE), read_machine("8xA100"), TrainingShape(4096), BASE)
    assert found.best is not None
    assert found.best.candidate.parallel == "ddp"
    assert all(one.fits for one in found.estimates if not one.obstacle)


@pytest.fixture(scope="module")
def profiler():
    """Seven billion parameters."""
    return Profiler(Model(net="transformer", arguments=SEVEN_BILLION), SERIES, Path(), "bf16", flash=True)


@pytest.fixture(scope="module")
def large(profiler):
    return plan(profiler, read_machine("8xH100"), TrainingShape(256, "bf16"), BASE)


@pytest.mark.wide
def test_seven_billion_do_not_fit_whole_and_are_sharded(large):
    """Weights, gradients and AdamW's state in float32 are 16 bytes a parameter: 103 GB."""
    by_name = {one.candidate.parallel: one for one in large.estimates if one.candidate.ranks == 8}
    assert not by_name["ddp"].fits
    assert by_name["ddp"].needed_gb > 103
    assert by_name["fsdp"].fits
    assert large.best.candidate.parallel == "fsdp"
    assert any("ddp over 8 ranks needs" in reason and "does not fit" in reason for reason in large.reasons)


def test_those_that_fit_come_first_and_the_quickest_of_them(large):
    order = [(bool(one.obstacle), not one.fits) for one in large.estimates]
    assert order == sorted(order)
    times = [one.duration.step_s for one in large.estimates if one.fits]
    assert times == sorted(times)


def test_when_nothing_fits_as_it_is_memory_is_spared(profiler):
    found = plan(profiler, read_machine("2xH100"), TrainingShape(2048, "bf16"), BASE)
    assert found.best is not None
    assert {"train.accumulate", "train.recompute"} & set(found.best.candidate.overrides())


def test_an_own_net_that_no_rank_can_make_whole_is_no_plan(profiler, monkeypatch):
    """Whatever would hold a part of it: every rank makes the whole net first. A ready net is built in shards."""
    ready = plan(
        profiler, read_machine("8xH100").model_copy(update={"host_memory_gb": 200.0}), TrainingShape(256, "bf16"), BASE
    )
    assert ready.best.candidate.parallel == "fsdp"
    monkeypatch.setattr(profiler, "is_deferred", False)
    small = read_machine("8xH100").model_copy(update={"memory_gb": 28.0})
    assert not any(one.fits for one in plan(profiler, small, TrainingShape(8, "bf16"), BASE).estimates)
    host = read_machine("8xH100").model_copy(update={"host_memory_gb": 200.0})
    found = plan(profiler, host, TrainingShape(256, "bf16"), BASE)
    assert found.best is None
    assert "each of the 8 ranks of a node makes the whole net" in found.reasons[0]
    assert "80 GB on a device and 200 GB of the node: take a smaller net" in found.reasons[0]


def test_what_can_never_fit_says_what_is_needed(profiler, monkeypatch):
    monkeypatch.setattr(profiler, "is_deferred", False)
    found = plan(profiler, read_machine("2xL4"), TrainingShape(64, "bf16"), BASE)
    assert found.best is None
    assert found.reasons[0].startswith("Nothing can start: each of the 2 ranks of a node makes the whole net")
    larger = read_machine("2xL4").model_copy(update={"memory_gb": 33.0})
    assert plan(profiler, larger, TrainingShape(64, "bf16"), BASE).reasons[0].startswith("Nothing fits: the least is")


def test_without_a_peak_there_are_no_times_but_memory(make_profiler):
    machine = read_machine("8xA100").model_copy(update={"peak_tflops": {}})
    found = plan(make_profiler("mlp", TABLE), machine, TrainingShape(4096), BASE)
    assert all(one.duration is None for one in found.estimates)
    assert found.best is not None
    assert "No times" in found.reasons[-1]


def test_it_can_be_told_as_json(large):
    told = json.loads(json.dumps(large.as_json()))
    assert told["recommended"]["train.parallel"] == "fsdp"
    assert told["plans"][0]["memory_bytes"]["total"] > 0
    assert needed_gb(large.best.memory, large.machine) == pytest.approx(large.best.needed_gb)
