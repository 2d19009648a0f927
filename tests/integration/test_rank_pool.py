"""The gang as its callers meet it: real processes, real kills."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from models.distributed.forkserver import OF_RANKS
from models.errors import TrainingError, UserCodeError
from models.training.checkpoints.weights import weights_sha256
from models.training.job import WEIGHTS_FILE
from tasks.loop import jobs
from tasks.ranks.rank_pool import RankPool, default_threads
from tests import warm
from tests.tiny_jobs import job_maker
from tests.wide import wide

pytestmark = pytest.mark.integration

PATIENCE_S = 30  # of whoever waits for the kernel to end processes, on a busy machine too

PICTURES = {"augment": {"rotate_degrees": 20.0, "shift_pixels": 1, "brightness": 0.1, "mixup_alpha": 0.3}}
REGIMES = {
    "mlp": ("table", "binary", {"hidden": 32, "dropout": 0.2, "norm": "batch"}, {}),
    "cnn": ("image", "multiclass", {"width": 4, "hidden": 8}, PICTURES),
    "gru": ("series", "regression", {"hidden": 8, "dropout": 0.2}, {}),
    "fsdp": ("table", "multiclass", {"hidden": 32, "dropout": 0.2}, {"parallel": "fsdp"}),
}


def children_of(folder: Path) -> list[psutil.Process]:
    """Every live process of a run that names `folder` in what it has open, or the nursery tree of this test."""
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def rank_pids(pool: RankPool) -> list[psutil.Process]:
    fork_server = psutil.Process(pool._fork_server.pid)
    return [p for p in fork_server.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_threads_share_the_cores():
    cores = len(os.sched_getaffinity(0))
    assert default_threads(1) == cores
    assert default_threads(cores, 4) == 1


def test_the_caller_needs_no_torch_its_script_runs_once_and_epochs_arrive_once(tmp_path, make_job):
    """A script without a guard is the main module: its body does not run again in a rank."""
    job = make_job("table", "binary", arguments={"hidden": 8}, epochs=3)
    code = """
        print("main")
        import sys, json
        from pathlib import Path
        from models.training.job import TrainingJob
        from tasks.ranks.rank_pool import RankPool
        job = TrainingJob.model_validate_json(sys.argv[1], strict=False)
        seen = []
        with RankPool() as gang:
            result = gang.run(job, lambda epoch: seen.append(epoch.epoch) or True)
            again = gang.run(job)
        assert again == result
        print(json.dumps([seen, "torch" in sys.modules, result.weights_sha256]))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "script.py", job.model_dump_json()],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    main, last = done.stdout.splitlines()
    assert main == "main"
    seen, has_torch, digest = json.loads(last)
    assert seen == [1, 2, 3]
    assert not has_torch
    assert digest == weights_sha256(job.folder / WEIGHTS_FILE)


def test_a_batch_that_cannot_fit_is_refused_before_a_rank_starts(pool, make_job, monkeypatch):
    monkeypatch.setattr(jobs, "usable_memory", lambda: 1e8)
    monkeypatch.setattr(jobs, "usable_gpus", lambda _: 0)
    job = make_job(net="mlp", arguments={"hidden": 256}, batch=100_000)
    with pytest.raises(TrainingError, match=r"train\.batch: 100,000 examples need .* take at most about"):
        jobs.check_batch(pool, job)
    assert not job.folder.exists()


@pytest.mark.wide  # of a larger net in test_parallel.py
def test_two_ranks_follow_one_rank(pool, make_job):
    """Dropout and BatchNorm off: the same sums, differently grouped."""
    arguments = {"hidden": 16, "dropout": 0.0, "norm": "layer"}
    settings = {"optimiser": "sgd", "epochs": 2, "batch": 40}
    one = pool.run(make_job(folder="one", arguments=arguments, **settings))
    two = pool.run(make_job(folder="two", arguments=arguments, ranks=2, **settings))
    accumulated = pool.run(make_job(folder="acc", arguments=arguments, ranks=2, accumulate=2, **settings))
    assert two.world_size == 2
    for other in (two, accumulated):
        for a, b in zip(one.epochs, other.epochs, strict=True):
            assert a["train_loss"] == pytest.approx(b["train_loss"], rel=2e-6)
            assert a["val_loss"] == pytest.approx(b["val_loss"], rel=2e-6)


@pytest.mark.parametrize(
    ("regime", "ranks"),
    [
        # The bits of every net after a kill are seen in the unit tests of the loop: here, of one with random pictures.
        *(pytest.param(name, 1, marks=pytest.mark.soak) for name in ("mlp", "gru")),
        wide("cnn", 1),
        # Two ranks go on as one each: the net makes no difference that one rank and mlp, fsdp do not show.
        ("mlp", 2),
        wide("fsdp", 2),
        *(pytest.param(name, 2, marks=pytest.mark.soak) for name in ("cnn", "gru")),
    ],
)
def test_killed_ranks_start_again_and_end_with_the_same_bits(pool, make_job, regime, ranks):
    kind, task, arguments, train = REGIMES[regime]
    train = {**train, "epochs": 6, "count": 120, "ranks": ranks}
    expected = pool.run(make_job(kind, task, arguments=arguments, folder="whole", **train))
    draw, kills = random.Random(f"{regime}{ranks}"), []

    def kill_one(epoch):
        if epoch.epoch in (2, 4):
            ranks_alive = rank_pids(pool)
            leaves = [p for p in ranks_alive if not p.children()]
            victim = draw.choice(leaves)
            kills.append(victim.pid)
            victim.send_signal(signal.SIGKILL)
        return True

    result = pool.run(make_job(kind, task, arguments=arguments, folder="killed", **train), kill_one)
    assert len(kills) == 2
    assert result.restarts == 2
    assert result.resumed_from
    assert result.weights_sha256 == expected.weights_sha256
    assert [e["val_loss"] for e in result.epochs] == [e["val_loss"] for e in expected.epochs]
    assert rank_pids(pool) == []


MOVED = {
    "kind": "table",
    "task": "multiclass",
    "net": "transformer",
    "epochs": 4,
    "count": 200,
    "batch": 40,
    "arguments": {"width": 16, "layers": 2, "dropout": 0.0},
    "optimiser": "sgd",
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, pool):
    """What one rank makes of the job."""
    return pool.run(job_maker(tmp_path_factory.mktemp("undisturbed"))(**MOVED))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # test_parallel.py has one rank go on from fsdp, and tp from pp (wide).
        pytest.param({"ranks": 2, "parallel": "fsdp"}, {"ranks": 1}, marks=pytest.mark.soak),
        wide({"ranks": 1}, {"ranks": 4, "parallel": "fsdp"}),
        pytest.param({"ranks": 2, "parallel": "pp"}, {"ranks": 2, "parallel": "tp"}, marks=pytest.mark.soak),
    ],
)
def test_other_ranks_in_another_plan_go_on_from_the_checkpoint(pool, make_job, undisturbed, before, after):
    """As if one rank had done it, but for the rounding of sums in another order."""

    def stop(epoch):
        if epoch.epoch == 3:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        pool.run(make_job(folder="moved", **MOVED, **before), stop)
    result = pool.run(make_job(folder="moved", **MOVED, **after))
    assert result.resumed_from
    assert [ranks for _, ranks, _ in result.environment["worlds"]] in ([before["ranks"], after["ranks"]], [2])
    for got, wanted in zip(result.epochs, undisturbed.epochs, strict=True):
        assert got["val_loss"] == pytest.approx(wanted["val_loss"], rel=1e-4)


_CALLER = """
    import sys, time
    from models.training.job import TrainingJob
    from tasks.ranks.rank_pool import RankPool
    job = TrainingJob.model_validate_json(sys.argv[1], strict=False)

    def report(epoch):
        print(epoch.epoch, flush=True)
        if epoch.epoch == 6:  # however late the kill comes, it finds the ranks
            time.sleep(600)
        return True

    with RankPool() as gang:
        gang.run(job, report)
"""


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_killing_the_caller_leaves_no_orphan_and_the_next_run_goes_on(pool, make_job, tmp_path, ranks):
    """Two ranks: the same bits in tests/launcher_contract.py, and no orphan of a killed loop in tests/fault."""
    kind, task, arguments, train = REGIMES["mlp"]
    train = {**train, "epochs": 8, "count": 400, "ranks": ranks}
    job = make_job(kind, task, arguments=arguments, folder="killed", **train)
    code = textwrap.dedent(_CALLER).replace("sys.argv[1]", repr(job.model_dump_json()))
    printed, printing = os.pipe()
    caller = warm.server().start("-c", (code,), dict(os.environ), tmp_path, (0, printing, 2))
    os.close(printing)
    with os.fdopen(printed) as lines:
        for line in lines:
            if int(line) >= 3:
                break
    family = psutil.Process(caller.pid).children(recursive=True)
    assert len(family) >= ranks + 1
    time.sleep(random.Random(ranks).random() * 0.2)
    caller.kill()
    caller.wait()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []
    result = pool.run(job)
    assert result.resumed_from
    expected = pool.run(make_job(kind, task, arguments=arguments, folder="whole", **train))
    assert result.weights_sha256 == expected.weights_sha256


def test_an_exception_in_the_caller_ends_the_ranks(pool, make_job):
    job = make_job(arguments={"hidden": 8}, epochs=50, ranks=2)

    def cancel(epoch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(job, cancel)
    end = time.monotonic() + PATIENCE_S
    while rank_pids(pool) and time.monotonic() < end:
        time.sleep(0.02)
    assert rank_pids(pool) == []


def test_all_ranks_are_pruned_together(pool, make_job):
    job = make_job(arguments={"hidden": 8}, epochs=50, ranks=2)
    listening = set()

    def look(epoch):
        for process in rank_pids(pool):
            listening.update(each.laddr.ip for each in process.net_connections() if each.status == psutil.CONN_LISTEN)
        return epoch.epoch < 3 or not job.scratch_folder.exists()

    result = pool.run(job, look)
    assert result.pruned
    assert len(result.epochs) == 3
    assert listening == {"127.0.0.1"}, "nobody outside this machine reaches the ranks"
    assert not job.scratch_folder.exists()


def test_several_threads_may_run_jobs_at_once(pool, make_job):
    jobs = [make_job(folder=f"job{i}", arguments={"hidden": 8}, seed=i) for i in range(4)]
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.setdefault(i, pool.run(jobs[i]))) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({results[i].weights_sha256 for i in range(4)}) == 4


def write_net(folder: Path, body: str) -> str:
    (folder / "net.py").write_text(textwrap.dedent(body))
    return "./net.py:Net"


RAISING = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self, num_numeric, num_outputs):
            super().__init__()
            self.calls = 0
            self.layer = torch.nn.Linear(num_numeric, num_outputs)
        def forward(self, numeric):
            self.calls += 1
            if self.calls > 6 {where}:
                raise ValueError("the sky is falling")
            return self.layer(numeric)
"""


@pytest.mark.parametrize(("ranks", "where"), [(1, ""), wide(2, ""), (2, "and torch.distributed.get_rank() == 1")])
def test_an_error_in_a_rank_reaches_the_caller_with_its_traceback(pool, make_job, tmp_path, ranks, where):
    net = write_net(tmp_path, RAISING.format(where=where))
    job = make_job(net=net, ranks=ranks)
    before = set(Path(tempfile.gettempdir()).glob("pytorch-errorfile-*"))
    with pytest.raises((TrainingError, UserCodeError), match="the sky is falling") as caught:
        pool.run(job)
    assert before == set(Path(tempfile.gettempdir()).glob("pytorch-errorfile-*"))
    assert not job.scratch_folder.exists()
    assert 'raise ValueError("the sky is falling")' in "".join(caught.value.__notes__)


DYING = """
    import os, signal, torch
    class Net(torch.nn.Module):
        def __init__(self, num_numeric, num_outputs):
            super().__init__()
            self.layer = torch.nn.Linear(num_numeric, num_outputs)
        def forward(self, numeric):
            if numeric.shape[0] > 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return self.layer(numeric)
"""


@pytest.mark.parametrize("ranks", [wide(1), 2])
def test_ranks_that_always_die_end_in_an_error_that_says_so(pool, make_job, tmp_path, ranks):
    with pytest.raises(TrainingError, match="SIGKILL"):
        pool.run(make_job(net=write_net(tmp_path, DYING), ranks=ranks, max_restarts=1))


@pytest.mark.wide  # two ranks without a pool: tests/unit/models/distributed/test_watchdog.py
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_is_named(pool, make_job, stopped):
    """SIGSTOP: alive, and silent. Its peer would wait for ever in a collective."""
    job = make_job(arguments={"hidden": 8}, ranks=2, epochs=500, count=2000, job={"silence_s": 3.0})

    def stop_one(epoch):
        if epoch.epoch == 1:
            (leaves := [p for p in rank_pids(pool) if not p.children()]).sort(key=lambda p: p.pid)
            threading.Timer(0.3, leaves[stopped].suspend).start()
        return True

    with pytest.raises(
        TrainingError, match=rf"stood still for 3 s: rank {stopped} is behind: it says nothing"
    ) as caught:
        pool.run(job, stop_one)
    assert "run_job" in "".join(caught.value.__notes__)
    end = time.monotonic() + PATIENCE_S
    while rank_pids(pool) and time.monotonic() < end:
        time.sleep(0.02)
    assert rank_pids(pool) == []


GREEDY = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self, num_numeric, num_outputs):
            super().__init__()
            self.layer = torch.nn.Linear(num_numeric, num_outputs)
        def forward(self, numeric):
            return self.layer(numeric) + (torch.empty(1 << 50).sum() if numeric.shape[0] > 2 else 0)
"""


@pytest.mark.parametrize("ranks", [1, wide(2)])
def test_a_rank_out_of_memory_says_what_would_help(pool, make_job, tmp_path, ranks):
    with pytest.raises(TrainingError, match=r"rank \d ran out of memory .*lower train.batch \(now 32\)"):
        pool.run(make_job(net=write_net(tmp_path, GREEDY), ranks=ranks))


def test_nan_names_step_and_layer_on_two_ranks(pool, make_job):
    job = make_job(arguments={"hidden": 8}, ranks=2, lr=1e30, optimiser="sgd", clip_norm=None)
    with pytest.raises(TrainingError, match=r"not finite at step \d.*trunk"):
        pool.run(job)


def test_the_warmed_process_may_die_and_is_replaced(make_job):
    with RankPool() as pool:
        pool.warm()
        first = pool.call("os:getppid")
        os.kill(first, signal.SIGKILL)
        pool._fork_server.wait()
        assert pool.call("os:getppid") != first
        assert pool.run(make_job(arguments={"hidden": 8})).weights_sha256


def test_only_what_a_net_needs_is_imported_and_once(make_job, monkeypatch):
    """What several ranks need costs 1.7 s of CPU, which one rank does not need."""
    asked = []
    exchange = RankPool._exchange

    def noting(pool, sock, request, descriptors):
        asked.append(request[1] if request[0] == "import" else request[0])
        return exchange(pool, sock, request, descriptors)

    monkeypatch.setattr(RankPool, "_exchange", noting)
    with RankPool() as pool:
        pool.call("os:getpid")
        assert asked == ["start", "wait"]
        for folder, ranks in (("one", 1), ("two", 2), ("again", 2)):
            pool.run(make_job(folder=folder, arguments={"hidden": 8}, epochs=1, ranks=ranks))
        assert asked[2:] == ["start", "wait", *OF_RANKS, "start", "wait", "start", "wait"]


@pytest.mark.wide
@pytest.mark.usefixtures("cold_fork_servers")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_a_job_that_waits_for_the_warmed_process_outlives_it(make_job, number):
    """A trial that began just then must not count as failed: the search would choose another one."""
    whole = make_job(arguments={"hidden": 8})
    with RankPool() as pool:
        threading.Timer(0.3, lambda: os.kill(pool._fork_server.pid, number)).start()  # amid its imports
        cut = pool.run(whole)
        first = pool._fork_server.pid
    assert cut.restarts == 0
    assert not psutil.pid_exists(first)


@pytest.mark.soak
def test_a_module_that_python_runs_is_not_imported_again(make_job, tmp_path):
    """As for a script, which a test of every day runs: a fork server gets no main module of any kind."""
    job = make_job(arguments={"hidden": 8}, epochs=1, ranks=2)
    (tmp_path / "script.py").write_text("print('main')\n" + textwrap.dedent(_CALLER))
    done = subprocess.run(
        [sys.executable, "-m", "script", job.model_dump_json()],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.count("main") == 1
