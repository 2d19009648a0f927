"""The figures that only a GPU can tell: as `make bench-gpu` prints them, with the bounds that are promised."""

from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from models.distributed.world import World
from models.training.loop import make_step
from models.training.session import open_session
from tests.bench import gpu
from tests.bench.gpu import LARGE, MIDDLE, TOY, Case, busy_share, plan_check
from tests.wide import wide

pytestmark = pytest.mark.integration
HAS_GPU = torch.cuda.is_available()
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")]


def test_the_busy_share_counts_what_runs_at_once_only_once() -> None:
    assert busy_share([(0, 4), (1, 2), (3, 5), (9, 10)]) == pytest.approx(6 / 10)
    assert busy_share([(2, 5)]) == 1


@pytest.mark.parametrize("part", [pytest.param("options", marks=pytest.mark.soak), wide("starts"), wide("determinism")])
def test_the_tables_are_made_without_a_gpu_too(tmp_path: Path, part: str) -> None:
    heads, rows = gpu.PARTS[part]
    table = list(rows(tmp_path / part, True))
    assert table
    assert {len(row) for row in table} == {len(heads)}


@pytest.mark.wide
def test_a_plan_is_checked_by_what_a_training_reports(tmp_path: Path) -> None:
    check = plan_check(tmp_path / "toy", TOY, "fp32")
    assert 0 < check.foretold_bytes < check.held_bytes, "on a CPU all of the process is held"
    assert check.foretold_s > 0
    assert check.measured_s > 0


@pytest.mark.parametrize("part", [pytest.param(part, marks=on_gpu) for part in ("nets", "options")])
def test_every_net_and_option_learns_in_every_precision(tmp_path: Path, part: str) -> None:
    table = list(gpu.PARTS[part][1](tmp_path / part, False))
    assert table
    for *names, losses in table:
        first, _, last = losses.partition(" -> ")
        assert float(last) < float(first), names


@pytest.mark.parametrize(
    "side", [pytest.param(2, marks=on_gpu, id="again"), pytest.param(3, marks=on_gpu, id="resumed")]
)
def test_a_job_has_the_same_bits(tmp_path: Path, side: int) -> None:
    assert [row for row in gpu.bits(tmp_path / "bits", False) if row[side] != "yes"] == []


@pytest.mark.parametrize(
    "case", [pytest.param(MIDDLE, marks=on_gpu, id="150M"), pytest.param(LARGE, marks=on_gpu, id="1B")]
)
def test_a_plan_is_near_what_is_measured(tmp_path: Path, case: Case) -> None:
    check = plan_check(tmp_path / "plan", case, "bf16")
    assert check.foretold_bytes == pytest.approx(check.held_bytes, rel=0.10)
    assert check.foretold_s == pytest.approx(check.measured_s, rel=0.15)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
@pytest.mark.timeout(1200)
def test_the_engine_keeps_up_with_a_bare_loop_and_uses_the_gpu(tmp_path: Path) -> None:
    table = list(gpu.speed(tmp_path / "speed", False))
    for name, parameters, _, _, ratio, *_ in table:
        assert float(ratio) >= 0.98, (name, parameters)
    middle, large = (row[5] for row in table if row[0] == "bf16 compiled")
    assert float(middle) >= 0.45
    assert float(large) >= 0.55


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_a_large_net_starts_soon_and_one_that_cannot_fit_is_refused_at_once(tmp_path: Path) -> None:
    (_, started, trained), (_, refused, why) = gpu.starts(tmp_path / "starts", False)
    assert trained == "trained"
    assert float(started) < 5
    assert "weights, gradients and optimiser state" in why
    assert float(refused) < 2


@pytest.mark.parametrize(
    "is_toy", [pytest.param(True, marks=pytest.mark.soak, id="toy"), pytest.param(False, marks=on_gpu, id="gpu")]
)
@pytest.mark.usefixtures("cold_fork_servers")
def test_a_killed_rank_costs_one_restart_and_the_bits_stay(tmp_path: Path, is_toy: bool) -> None:
    table = list(gpu.restarts(tmp_path / "restarts", is_toy))
    assert [row[3:] for row in table] == [("0", "-"), ("0", "yes"), ("1", "yes")]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_determinism_costs_nothing(tmp_path: Path) -> None:
    (_, deterministic, same), (_, free, _) = gpu.determinism(tmp_path / "determinism", False)
    assert same == "yes"
    assert float(deterministic) <= float(free) * 1.03


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_the_gpu_does_not_wait_between_steps(tmp_path: Path) -> None:
    job = gpu.decoder_job(tmp_path / "trace", MIDDLE, "bf16", compiled=False)
    world = World(device=torch.device("cuda", 0))
    session = open_session(job, world)
    session.plan.learn(on=True)
    step, order = make_step(session), session.train.order(0, session.order)
    for index in range(5):
        step(order, 0, index)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for index in range(5, 25):
            step(order, 0, index)
        torch.cuda.synchronize()
    on_device = (event.time_range for event in traced.events() if event.device_type == DeviceType.CUDA)
    assert busy_share((one.start, one.end) for one in on_device) >= 0.95
