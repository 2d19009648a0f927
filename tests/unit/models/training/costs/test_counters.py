import sys
from pathlib import Path

import pytest
import torch

from models.training.costs import counters
from models.training.costs.counters import EnergyCounter, peak_memory_mb, reset_peak

CPU = torch.device("cpu")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc to forget a peak")
def test_the_peak_is_that_since_the_last_look():
    assert torch.ones(25_000_000)[0] == 1  # the first comparison loads 2 MB of code
    reset_peak(CPU)
    before = peak_memory_mb(CPU)
    held = torch.ones(25_000_000)
    grown = peak_memory_mb(CPU) - before
    assert held[0] == 1
    del held
    later = peak_memory_mb(CPU) - before  # before any other assertion: what `approx` imports would count too
    assert grown == pytest.approx(100, rel=0.1)
    assert later == pytest.approx(grown, abs=1)


def test_without_proc_it_is_the_whole_processes_peak(monkeypatch, tmp_path):
    monkeypatch.setattr(counters, "_STATUS", tmp_path / "none")
    assert peak_memory_mb(CPU) > 50


def test_without_a_counter_energy_is_not_known(monkeypatch, tmp_path):
    monkeypatch.setattr(counters, "_RAPL", tmp_path)
    assert EnergyCounter(CPU).joules() is None


@pytest.mark.skipif(sys.platform != "linux", reason="RAPL is Linux's")
def test_packages_are_added_and_a_counter_that_began_again_goes_on(monkeypatch, tmp_path):
    zones = [tmp_path / "intel-rapl:0", tmp_path / "intel-rapl:1", tmp_path / "intel-rapl:0:0"]
    for zone in zones:
        zone.mkdir()
        (zone / "energy_uj").write_text("5000000\n")
        (zone / "max_energy_range_uj").write_text("9000000\n")
    monkeypatch.setattr(counters, "_RAPL", tmp_path)
    counter = EnergyCounter(CPU)
    (zones[0] / "energy_uj").write_text("7000000\n")
    (zones[2] / "energy_uj").write_text("8000000\n")
    assert counter.joules() == pytest.approx(2)
    (zones[1] / "energy_uj").write_text("1000000\n")
    assert counter.joules() == pytest.approx(7)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_says_what_it_took():
    device = torch.device("cuda", 0)
    counter = EnergyCounter(device)
    reset_peak(device)
    matrix = torch.ones(4096, 4096, device=device)
    for _ in range(200):
        matrix = matrix @ matrix.clamp(max=1e-3)
    torch.cuda.synchronize()
    assert peak_memory_mb(device) >= 2 * 67
    assert counter.joules() is None or counter.joules() > 0
