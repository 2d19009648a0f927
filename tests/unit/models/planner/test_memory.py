from types import SimpleNamespace

import pytest

from models.planner.candidates import Candidate
from models.planner.memory import TrainingShape, memory_of
from models.planner.profile import ActivationBytes, ParameterCounts
from models.project_spec.blocks import Train
from models.training.optimisation.optimisers import state_ratio
from tests.unit.models.planner.conftest import IMAGE, SERIES, TABLE
from tests.wide import wide


@pytest.mark.parametrize(
    ("net", "sizes", "batch", "arguments"),
    [
        ("mlp", TABLE, 64, {"hidden": 1024, "layers": 4}),
        wide("mlp", TABLE, 4096, {"hidden": 64}),
        wide("transformer", SERIES, 16, {"width": 128, "layers": 4}),
        wide("transformer", SERIES, 2, {"width": 384, "layers": 4}),
        ("cnn", IMAGE, 32, {}),
    ],
    ids=["mlp, weights", "mlp, activations", "transformer, activations", "transformer, weights", "cnn"],
)
def test_one_rank_needs_within_a_tenth_of_what_torchs_tracker_finds(
    make_profiler, tracked, net, sizes, batch, arguments
):
    found = memory_of(make_profiler(net, sizes, **arguments), Candidate("ddp"), TrainingShape(batch), exact=True)
    assert found.total == pytest.approx(tracked(net, sizes, batch, **arguments), rel=0.1)


class Figures:
    """A net of round numbers: 8 blocks of a thousand parameters, 200 in front of them, 300 behind."""

    tensor_parts = 8
    num_blocks = 8
    is_deferred = False

    def weights(self, tensor=1):
        return ParameterCounts(outside=500, enter=200, block=1000 // tensor, num_blocks=8, buffers=0)

    def activations(self, micro_batch, tensor=1, recompute="none"):
        return ActivationBytes(
            saved=900 * micro_batch, block=100 * micro_batch, peak=1000 * micro_batch, apart=1000 * micro_batch,
            hidden=10 * micro_batch, inputs=micro_batch, small=500 * micro_batch,
        )  # fmt: skip

    exactly = activations


NET = Figures()
WHOLE = 4 * 8500
TRAINING = TrainingShape(batch=64)


def of(**fields):
    found = memory_of(NET, Candidate(**fields), TRAINING)
    return SimpleNamespace(weights=found.weights, optimiser=found.optimiser, activations=found.activations, all=found)


def test_ddp_holds_everything_but_the_batch():
    found = of(parallel="ddp", data=8)
    assert (found.weights, found.optimiser) == (WHOLE, 2 * WHOLE)
    assert found.activations == 8 * 1001


def test_sharding_divides_weights_gradients_and_state_and_gathers_units():
    found = of(parallel="fsdp", data=8)
    assert (found.weights, found.all.gradients, found.optimiser) == (WHOLE // 8, WHOLE // 8, 2 * WHOLE // 8)
    assert found.all.gathered == 4 * (2 * 1000 + 500) + 4 * 2 * 1000
    assert of(parallel="hsdp", data=8, replicas=2).weights == WHOLE // 4


def test_stages_hold_their_blocks_and_what_is_in_flight():
    one_f = of(parallel="pp", stages=4, microbatches=8)
    assert one_f.weights == 4 * (300 + 2 * 1000)
    kept = 2 * 100 * 8 + 100 * 8 + 10 * 8
    assert one_f.activations == 4 * (kept + 8) + 100 * 8
    gpipe = of(parallel="pp", stages=4, microbatches=8, pipeline="gpipe")
    assert gpipe.activations == 8 * (kept + 8) + 100 * 8


def test_the_state_alone_is_sharded_beside_ddp():
    found = memory_of(NET, Candidate("ddp", data=8), TrainingShape(64, shard_optimiser=True))
    assert (found.weights, found.optimiser) == (WHOLE, 2 * WHOLE // 8)


def test_on_a_cpu_the_best_weights_are_in_the_same_memory():
    assert memory_of(NET, Candidate("ddp", data=8), TrainingShape(64, on_cpu=True)).host == WHOLE


def test_a_cpu_holds_more_than_its_small_tensors():
    """Half of the figures' tensors are small."""
    found = memory_of(NET, Candidate("ddp", data=8), TrainingShape(64, on_cpu=True))
    assert found.holes == round(0.4 * 0.5 * found.activations)
    assert memory_of(NET, Candidate("ddp", data=8), TrainingShape(64)).holes == 0


def test_in_the_heap_of_a_cpu_gradients_take_no_room_of_freed_activations():
    """Half of the activations are in the heap; the others give their room back."""
    gpu, cpu = (memory_of(NET, Candidate("ddp"), TrainingShape(64, on_cpu=here), exact=True) for here in (False, True))
    assert gpu.activations == 64 * 1001 - WHOLE
    assert cpu.activations == 64 * 1001 - WHOLE // 2
    assert cpu.holes == round(0.4 * 0.5 * 64 * 1001)


@pytest.mark.parametrize(("batch", "share"), [(64, 1.0), (16384, 0.0)])
def test_tensors_of_32_mib_leave_no_holes(make_profiler, batch, share):
    found = make_profiler("mlp", TABLE, hidden=1024).exactly(batch)
    assert found.small / found.peak == pytest.approx(share, abs=0.05)


def test_an_lstm_stores_what_its_shapes_do_not_show(make_profiler):
    """Per number of its output: 15 of its own, and the outputs themselves."""
    found = make_profiler("lstm", SERIES, hidden=64).exactly(256)
    assert found.saved == pytest.approx(256 * 32 * 64 * (60 + 4), rel=0.1)


def test_a_rank_holds_the_whole_net_before_it_is_cut_unless_it_is_built_in_shards(monkeypatch):
    cut = memory_of(NET, Candidate("fsdp", data=64), TrainingShape(64))
    assert cut.whole == WHOLE
    assert cut.total >= WHOLE > cut.weights
    monkeypatch.setattr(Figures, "is_deferred", True)
    assert memory_of(NET, Candidate("fsdp", data=64), TrainingShape(64)).whole == cut.weights
    groups = memory_of(NET, Candidate("hsdp", data=64, replicas=8), TrainingShape(64))
    assert groups.whole == groups.weights > cut.weights
    for name in ("ddp", "fsdp+tp"):
        assert memory_of(NET, Candidate(name, data=64), TrainingShape(64)).whole == WHOLE


@pytest.mark.parametrize(("name", "expected"), [("adamw", 2.0), ("adam", 2.0), ("sgd", 1.0)])
def test_the_state_of_an_optimiser_is_measured(name, expected):
    assert state_ratio(Train(optimiser=name)) == pytest.approx(expected)


def test_what_the_spec_says_is_taken_over():
    train = Train(batch=128, precision="bf16", accumulate=4, recompute="full", parallel="pp", ranks=2, microbatches=8)
    assert TrainingShape.of(train, on_cpu=False).batch == 128
    base = Candidate.of(train)
    assert (base.accumulate, base.recompute, base.microbatches, base.pipeline) == (4, "full", 8, "1f1b")
