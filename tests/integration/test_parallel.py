"""Every plan against one process: the same losses, gradients and weights, whatever the ranks and however they are cut.

SGD's weights are a sum of gradients, so gradients that agree to 1e-7 give weights that do; AdamW would turn rounding of
1e-9 into 4e-4, so it is compared in float64.
"""

import shutil
import textwrap

import pytest
import torch
from safetensors.torch import load_file

from models.training.job import WEIGHTS_FILE
from models.training.loop import train
from models.training.rank import run_job
from models.training.session import open_session
from tests.ranks import on_ranks
from tests.tiny_jobs import job_maker
from tests.wide import wide

pytestmark = pytest.mark.integration


NET = {"width": 8, "layers": 2, "heads": 2, "dropout": 0.0}
SGD = {"optimiser": "sgd", "lr": 0.1, "epochs": 1, "batch": 34, "count": 79}
PLANS = {
    "ddp": {"ranks": 2, "accumulate": 2},
    "zero": {"ranks": 2, "shard_optimiser": True},
    "fsdp": {"ranks": 2, "accumulate": 2},
    "tp": {"ranks": 2},
    "pp": {"ranks": 2, "pipeline": "gpipe", "accumulate": 2},
    "pp-1f1b": {"ranks": 2},
    "hsdp": {"ranks": 4},
    "ddp+tp": {"ranks": 4},
    "fsdp+tp": {"ranks": 4},
    "ddp+pp": {"ranks": 4},
    "fsdp+pp": {"ranks": 4},
}

LATER = {"ddp+tp": pytest.mark.soak, **dict.fromkeys(("pp", "hsdp", "fsdp+tp", "fsdp+pp"), pytest.mark.wide)}
"""Of the composed plans, each change runs ddp+pp, the cheapest; of the schedules of a pipeline, 1F1B."""


def settings(plan):
    name = plan.split("-")[0]
    return {**PLANS[plan], "parallel": "ddp" if name == "zero" else name}


def run(job, pool, report=None):
    """The result of rank 0 and the weights; a job of one rank is trained in the process of the test."""
    result = run_job(job, report) if job.train.ranks == 1 else pool.run(job, report)
    return result, load_file(job.folder / WEIGHTS_FILE)


def furthest(found, expected):
    assert found.keys() == expected.keys()
    return max((found[name].double() - expected[name].double()).abs().max().item() for name in expected)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process makes of the net."""
    job = job_maker(tmp_path_factory.mktemp("alone"))(net="transformer", arguments=NET, **SGD)
    return run_job(job), load_file(job.folder / WEIGHTS_FILE)


@pytest.mark.parametrize("plan", [pytest.param(plan, marks=LATER.get(plan, ())) for plan in PLANS])
def test_every_plan_ends_where_one_process_does(make_job, pool, alone, plan):
    job = make_job(net="transformer", arguments=NET, **SGD, **settings(plan))
    result, weights = run(job, pool)
    expected, theirs = alone
    for name in ("train_loss", "val_loss"):
        assert result.epochs[0][name] == pytest.approx(expected.epochs[0][name], rel=1e-6), name
    assert furthest(weights, theirs) < 2e-7
    assert result.num_parameters == expected.num_parameters
    assert result.environment["parallel"] == job.train.parallel
    assert sorted(result.environment["mesh"].values()) == sorted({2: [2], 4: [2, 2]}[job.train.ranks])


TEXT = {"arguments": {"width": 16, "layers": 2, "heads": 2}, "count": 64, "batch": 8, "epochs": 1}


@pytest.fixture(scope="module")
def text_alone(tmp_path_factory):
    """What one process makes of a text."""
    return run_job(job_maker(tmp_path_factory.mktemp("text"))("text", "language", **TEXT))


@pytest.mark.wide  # each plan with a table is above
@pytest.mark.parametrize(
    "parallel",
    [
        "ddp",
        "fsdp",
        pytest.param("hsdp", marks=pytest.mark.soak),
        "tp",
        "pp",
    ],
)
def test_a_text_is_learnt_alike_under_every_plan(make_job, pool, text_alone, parallel):
    """Two ranks of hsdp cut as those of fsdp do, and what is hsdp's own is seen on four, above."""
    result = pool.run(make_job("text", "language", ranks=2, parallel=parallel, **TEXT))
    for one, two in zip(text_alone.epochs, result.epochs, strict=True):
        for name in ("train_loss", "val_loss", "val_bits_per_char"):
            assert two[name] == pytest.approx(one[name], rel=1e-3), name


DOUBLE = """
    from torch import nn
    from models.nets import transformer

    class Net(nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.inner = transformer.build(sizes, width=8, layers=2, heads=2, dropout=0.0).double()
        def forward(self, numeric, categorical):
            hidden = self.enter(numeric, categorical)
            for block in self.blocks():
                hidden = block(hidden)
            return self.leave(hidden)
        def blocks(self):
            return self.inner.blocks()
        def enter(self, numeric, categorical):
            return self.inner.enter(numeric=numeric.double(), categorical=categorical)
        def leave(self, hidden):
            return self.inner.leave(hidden)
        def tensor_plan(self):
            return {f"inner.{path}": style for path, style in self.inner.tensor_plan().items()}
        def tensor_parts(self):
            return self.inner.tensor_parts()
"""


@pytest.mark.wide  # gradients agree above, where SGD makes weights of them
@pytest.mark.parametrize("plan", ["fsdp", "pp"])
def test_in_float64_the_weights_of_adamw_agree_too(make_job, pool, tmp_path, plan):
    """An own net that says how it is split. No clipping: the norm is taken in float32.

    Where a gradient is almost zero, as that of a key's bias, AdamW divides its rounding (5e-14, measured) by 1e-8, and
    later steps spread it: so a small rate. Rounding to float32 (1e-9) would still be seen, as 1e-7.
    """
    (tmp_path / "net.py").write_text(textwrap.dedent(DOUBLE))
    base = {**SGD, "net": "./net.py:Net", "optimiser": "adamw", "clip_norm": None, "checkpoints": False, "lr": 1e-6}
    job = {"checkpoints": base.pop("checkpoints")}
    _, expected = run(make_job(folder="one", job=job, **base), pool)
    _, found = run(make_job(folder="two", job=job, **base, ranks=2, parallel=plan), pool)
    assert furthest(found, expected) < 1e-9


PLAIN = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self, num_numeric, num_outputs):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(num_numeric, 7), torch.nn.Tanh(), torch.nn.Linear(7, num_outputs)
            )
        def forward(self, numeric):
            return self.layers(numeric)
"""


@pytest.mark.parametrize("plan", [wide("ddp"), "fsdp"])
def test_a_net_that_says_nothing_of_itself_trains_unchanged(make_job, pool, tmp_path, plan):
    (tmp_path / "net.py").write_text(textwrap.dedent(PLAIN))
    _, expected = run(make_job(folder="one", net="./net.py:Net", **SGD), pool)
    _, found = run(make_job(folder="two", net="./net.py:Net", **SGD, ranks=2, parallel=plan), pool)
    assert furthest(found, expected) < 2e-7


@pytest.mark.wide
def test_weights_in_channels_last_memory_are_sharded_too(make_job, pool):
    job = make_job("image", "multiclass", arguments={"width": 4, "hidden": 8}, **SGD, ranks=2, parallel="fsdp")
    result, _ = run(job, pool)
    assert result.environment["mesh"] == {"shard": 2}


def interrupt(job, pool, last):
    """Kill the ranks when epoch `last` is over: the checkpoints of the epochs before stay."""

    def report(epoch):
        if epoch.epoch == last:
            raise InterruptedError
        return True

    with pytest.raises(InterruptedError):
        pool.run(job, report)


# The bits of fsdp after a kill are seen in test_rank_pool.py.
@pytest.mark.parametrize("plan", ["zero", pytest.param("fsdp", marks=pytest.mark.soak), wide("pp-1f1b")])
def test_going_on_gives_the_bits_of_a_run_that_was_never_interrupted(make_job, pool, plan):
    base = {**SGD, "optimiser": "adamw", "epochs": 2, "async_checkpoints": False, **settings(plan)}
    base |= {"net": "transformer", "arguments": {**NET, "dropout": 0.2}}
    job, cut = make_job(folder="whole", **base), make_job(folder="cut", **base)

    def report(epoch):
        """Keep what a kill would leave in the second epoch: the checkpoint of the first."""
        if epoch.epoch == 2:
            shutil.copytree(job.folder, cut.folder)
        return True

    whole, expected = run(job, pool, report)
    result, found = run(cut, pool)
    assert result.resumed_from
    assert result.weights_sha256 == whole.weights_sha256, furthest(found, expected)


@pytest.mark.wide
def test_any_plan_goes_on_from_any_other(make_job, pool):
    base = {**SGD, "net": "transformer", "arguments": NET, "epochs": 4, "async_checkpoints": False}
    _, expected = run(make_job(folder="one", **base), pool)
    for last, plan in ((2, "fsdp"), (3, "pp-1f1b"), (4, "tp")):
        interrupt(make_job(folder="cut", **base, **settings(plan) | {"accumulate": 1}), pool, last)
    result, found = run(make_job(folder="cut", **base), pool)
    assert len(result.resumed_from) == 3
    assert furthest(found, expected) < 1e-6


def test_ranks_that_share_a_layer_draw_the_same_masks(make_job, pool, tmp_path):
    job = make_job(net="transformer", arguments={**NET, "dropout": 0.3}, **SGD, ranks=2, parallel="tp")

    def work(world):
        session = open_session(job, world)
        train(session, lambda epoch: True)
        plain = {n: p.detach() for n, p in session.net.named_parameters() if not hasattr(p, "device_mesh")}
        return plain, torch.get_rng_state()

    (first, state), (second, other) = on_ranks(2, tmp_path / "ranks", work)
    assert len(first) > 10
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(state, other)


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        wide({"precision": "bf16", "parallel": "fsdp"}, 2e-2),
        wide({"precision": "bf16", "parallel": "pp"}, 2e-2),
        ({"recompute": "selective", "parallel": "pp"}, 1e-6),
        ({"gradient_hook": "fp16"}, 1e-4),
    ],
)
def test_what_saves_memory_or_messages_changes_losses_little(make_job, pool, alone, changes, tolerance):
    result, _ = run(make_job(net="transformer", arguments=NET, **SGD, ranks=2, **changes), pool)
    expected, _ = alone
    for name in ("train_loss", "val_loss"):
        assert result.epochs[0][name] == pytest.approx(expected.epochs[0][name], rel=tolerance), name
