import pytest

from models.planner.candidates import Candidate
from models.planner.duration import duration_of
from models.planner.machines import Cluster, read_machine
from models.planner.memory import TrainingShape
from tests.unit.models.planner.test_memory import Figures

TRAINING = TrainingShape(batch=64)
SLOW = Cluster.model_validate(
    {"device": "own", "devices": 8, "nodes": 2, "memory_gb": 80, "within_gb_per_s": 100, "between_gb_per_s": 10,
     "latency_s": 0, "efficiency": 0.5}
)  # fmt: skip
GRADIENTS = 4 * 8500


def of(flops=1e6, peak=1e12, machine=SLOW, **fields):
    return duration_of(Figures(), Candidate(**fields), TRAINING, machine, flops, peak)


def test_arithmetic_is_divided_over_the_ranks():
    assert of(parallel="ddp").step_s == pytest.approx(64 * 1e6 / 0.5e12)
    assert of(parallel="ddp", data=8).compute_s == pytest.approx(64 * 1e6 / 8 / 0.5e12)
    assert of(parallel="ddp", recompute="full").compute_s == pytest.approx(4 / 3 * 64 * 1e6 / 0.5e12)


def test_each_plan_sends_what_its_formula_says():
    assert of(parallel="ddp", data=8).sent_bytes == pytest.approx(2 * 7 / 8 * GRADIENTS)
    assert of(parallel="fsdp", data=8, accumulate=2).sent_bytes == pytest.approx(2 * 3 * 7 / 8 * GRADIENTS)
    assert of(parallel="tp", tensor=8).sent_bytes == pytest.approx(8 * 7 / 8 * 10 * 64 * 8)
    assert of(parallel="pp", stages=4, microbatches=8).sent_bytes == pytest.approx(2 * 10 * 64)


def test_what_crosses_nodes_takes_their_link():
    within, across = of(parallel="ddp", data=8), of(parallel="ddp", data=16)
    assert within.communicate_s == pytest.approx(within.sent_bytes / 100e9)
    assert across.communicate_s == pytest.approx(across.sent_bytes / 10e9)
    hybrid = of(parallel="hsdp", data=16, replicas=2)
    assert hybrid.communicate_s < of(parallel="fsdp", data=16).communicate_s, "shards stay within a node"


def test_gradients_hide_behind_the_backward_pass():
    assert of(parallel="ddp", data=8, flops=1e9).exposed_s == 0
    bound = of(parallel="ddp", data=8, flops=1)
    assert bound.exposed_s == pytest.approx(bound.communicate_s, rel=0.01)


def test_stages_wait_for_each_other():
    found = of(parallel="pp", stages=4, microbatches=8)
    assert found.bubble_s / (found.bubble_s + found.compute_s) == pytest.approx(3 / (8 + 3))


def test_latency_counts_a_collective_at_a_time():
    slow = SLOW.model_copy(update={"latency_s": 1.0})
    assert of(parallel="tp", tensor=8, machine=slow).exposed_s == pytest.approx(4 * 8, rel=1e-3)
    assert read_machine("laptop").latency_s == 2.7e-4
