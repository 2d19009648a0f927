import pytest

from models.planner.settings import base_candidate, training_of
from models.project_spec.blocks import Train
from models.training.optimisation.optimisers import state_ratio


@pytest.mark.parametrize(("name", "expected"), [("adamw", 2.0), ("adam", 2.0), ("sgd", 1.0)])
def test_the_state_of_an_optimiser_is_measured(name, expected):
    assert state_ratio(Train(optimiser=name)) == pytest.approx(expected)


def test_what_the_spec_says_is_taken_over():
    train = Train(batch=128, precision="bf16", accumulate=4, recompute="full", parallel="pp", ranks=2, microbatches=8)
    assert training_of(train, on_cpu=False).batch == 128
    base = base_candidate(train)
    assert (base.accumulate, base.recompute, base.microbatches, base.pipeline) == (4, "full", 8, "1f1b")
