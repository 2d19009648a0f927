"""A container's limit counts as well as the machine's cores."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models import cores


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cores, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    return tmp_path


@pytest.mark.parametrize(
    ("told", "found"), [("max 100000", 16), ("200000 100000", 2), ("250000 100000", 3), ("5000 100000", 1), ("odd", 16)]
)
def test_the_limit_of_a_container(cgroup: Path, told: str, found: int) -> None:
    (cgroup / "cpu.max").write_text(f"{told}\n")
    assert cores.usable_cores() == found


@pytest.mark.parametrize(("quota", "found"), [("-1", 16), ("400000", 4)])
def test_the_limit_of_an_older_kernel(cgroup: Path, quota: str, found: int) -> None:
    (cgroup / "cpu").mkdir()
    (cgroup / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (cgroup / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.usable_cores() == found


def test_without_any_limit_or_affinity(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.usable_cores() == 16
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.usable_cores() == 1


@pytest.mark.parametrize(
    ("names", "visible", "expected"),
    [
        (["null", "nvidiactl"], None, 0),
        (["nvidia0", "nvidia1", "nvidia2"], None, 3),
        (["nvidia0", "nvidia1", "nvidia2"], "0, 2", 2),
        (["nvidia0", "nvidia1"], "1,-1,0", 1),
        (["nvidia0"], "", 0),
        (["nvidia0"], "MIG-1a,MIG-2b", 2),
        (["kfd"], None, None),
        (["dxg"], None, None),
    ],
)
def test_gpus_are_those_that_the_kernel_shows_and_the_environment_leaves(
    names: list[str], visible: str | None, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "DEVICES", tmp_path)
    monkeypatch.setattr(cores.metadata, "version", lambda _: "2.13.0")
    for name in names:
        (tmp_path / name).touch()
    assert cores.usable_gpus(visible) == expected
    monkeypatch.setattr(cores.metadata, "version", lambda _: "2.13.0+cpu")
    assert cores.usable_gpus(visible) == 0


def test_elsewhere_than_on_linux_a_gpu_is_not_ruled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "DEVICES", tmp_path)
    monkeypatch.setattr(cores.metadata, "version", lambda _: "2.13.0")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cores.usable_gpus() is None


def test_cpu_seconds_count_children_that_run_and_that_have_ended_but_no_waiting() -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ntime.sleep(60)"
    began, start = time.perf_counter(), cores.cpu_seconds()
    child = subprocess.Popen([sys.executable, "-S", "-c", work], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.4)
        running = cores.cpu_seconds() - start
    finally:
        child.kill()
        child.communicate()
    ended = cores.cpu_seconds() - start
    assert 0.15 < running <= ended < time.perf_counter() - began - 0.2


def test_the_memory_limit_of_the_group_or_of_one_around_it_counts(
    cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "OWN_GROUPS", cgroup / "own")
    (cgroup / "own").write_text("5:cpu,cpuacct:/\n4:memory:/jobs/one\n0::/user/two\n")
    for name, limit in (("memory/jobs/one/memory.limit_in_bytes", "9000000"), ("user/two/memory.max", "max")):
        (cgroup / name).parent.mkdir(parents=True)
        (cgroup / name).write_text(f"{limit}\n")
    assert cores.usable_memory() == 9e6
    (cgroup / "user" / "memory.max").write_text("5000000\n")
    assert cores.usable_memory() == 5e6


def test_a_container_shows_its_limit_at_the_root(cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "OWN_GROUPS", cgroup / "none")
    (cgroup / "memory.max").write_text("7000000\n")
    assert cores.usable_memory() == 7e6
