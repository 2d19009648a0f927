"""Rows of a stream reach a GPU by a stream of their own; a step waits for nothing."""

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from models.distributed.world import World
from models.training.batches.transfer import rows_on
from models.training.loop import make_step
from models.training.rank import run_job
from models.training.session import open_session
from tests.tiny_jobs import MakeJob
from tests.waiting_operators import WaitingOperators

HAS_GPU = torch.cuda.is_available()


def test_on_a_cpu_rows_are_gathered_where_they_are() -> None:
    source = torch.arange(12.0).view(4, 3)
    assert torch.equal(rows_on(torch.device("cpu"), source, torch.tensor([2, 0])), source[[2, 0]])


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_a_streamed_job_has_the_bits_of_a_mapped_one_and_copies_beside_the_computation(make_job: MakeJob) -> None:
    settings: dict[str, Any] = {"net": "mlp", "count": 60_000, "epochs": 1, "batch": 256, "memory_mb": 1}
    world = World(device=torch.device("cuda"))
    first, second = (run_job(make_job(folder=name, **settings), world=world) for name in ("a", "b"))
    assert first.weights_sha256 == second.weights_sha256
    source = torch.randn(4096, 4096)
    product = torch.randn(8192, 8192, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as traced:
        for _ in range(4):
            product @ product
            rows_on(world.device, source, torch.arange(4096))
        torch.cuda.synchronize()
    copies = [one for one in traced.events() if "Memcpy HtoD" in one.name]
    assert copies
    assert all("Pinned" in one.name for one in copies)


@pytest.mark.parametrize(
    ("kind", "net"),
    [("table", "mlp"), ("image", "cnn"), ("series", "gru"), ("table", "transformer"), ("text", "decoder")],
)
def test_no_step_reads_a_value_of_a_tensor(make_job: MakeJob, kind: str, net: str) -> None:
    """On a GPU each such read would wait for all that was launched before."""
    task = "language" if kind == "text" else "binary"
    session = open_session(make_job(kind, task, net=net, augment={}, ema=0.9), World())
    step, order = make_step(session), session.train.order(0, session.order)
    session.plan.learn(on=True)
    step(order, 0, 0)
    with WaitingOperators() as waiting:
        step(order, 0, 1)
    assert dict(waiting.counts) == {}


def test_a_read_of_a_value_is_seen() -> None:
    with WaitingOperators() as waiting:
        torch.ones(3).sum().item()
        torch.ones(3).nonzero()
        _ = torch.ones(3)[torch.tensor([True, False, True])]
    assert waiting.counts["aten::_local_scalar_dense"] == 1
    assert waiting.counts["aten::nonzero"] >= 1
    assert sum(waiting.counts.values()) >= 3
