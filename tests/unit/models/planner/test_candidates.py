import pytest

from models.planner.candidates import Candidate, candidates, obstacle
from models.planner.machines import read_machine
from models.project_spec.blocks import Train
from tests.unit.models.planner.conftest import SERIES, TABLE

BASE = Candidate("ddp")
NODE, NODES = read_machine("8xH100"), read_machine("2x8xH100")


def test_every_plan_uses_every_device():
    found = list(candidates(NODES, BASE))
    assert {one.ranks for one in found} == {1, 16}
    assert {one.parallel for one in found} == {"ddp", "fsdp", "hsdp", "pp", "ddp+tp", "fsdp+tp", "ddp+pp", "fsdp+pp"}
    assert max(one.tensor for one in found) == 8, "a layer is not shared between nodes"
    assert "tp" in {one.parallel for one in candidates(NODE, BASE)}


def test_every_plan_is_one_that_the_spec_takes():
    for one in candidates(NODES, Candidate("ddp", recompute="full", accumulate=2)):
        words = {key.removeprefix("train."): value for key, value in one.overrides().items()}
        numbers = {key: int(value) for key, value in words.items() if value.isdigit()}
        Train(batch=4096, **{**words, **numbers})


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (Candidate("ddp", data=8), "train.batch is 8, at least 16"),
        (Candidate("tp", tensor=3), "3 ranks do not divide the net's 4 parts"),
        (Candidate("pp", stages=4, microbatches=4), "2 blocks make no 4 stages"),
        (Candidate("tp", tensor=2), ""),
    ],
)
def test_what_cannot_be_run_says_why(make_profiler, candidate, said):
    assert said in obstacle(candidate, make_profiler("transformer", SERIES), batch=8)
    assert bool(obstacle(candidate, make_profiler("transformer", SERIES), batch=8)) == bool(said)


def test_a_net_without_statements_is_not_split(make_profiler):
    profiler = make_profiler("mlp", TABLE)
    profiler.num_blocks = profiler.tensor_parts = 0
    assert "tensor_plan" in obstacle(Candidate("tp", tensor=2), profiler, 64)
    assert "blocks, enter, leave" in obstacle(Candidate("pp", stages=2), profiler, 64)
