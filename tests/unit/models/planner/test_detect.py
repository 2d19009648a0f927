import psutil
import pytest
import torch

from models.planner.detect import detect_machine


@pytest.mark.skipif(torch.cuda.is_available(), reason="finds the GPUs instead")
def test_a_cpu_is_shared_by_its_ranks(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 2)
    monkeypatch.setattr("models.planner.detect.usable_cores", lambda: 2)
    machine = detect_machine()
    assert (machine.kind, machine.nodes, machine.devices) == ("cpu", 1, 2)
    assert machine.memory_gb == pytest.approx(psutil.virtual_memory().total / 2e9)
    assert 1e9 < machine.peak("fp32") < 1e14


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpus_are_found_with_their_memory():
    machine = detect_machine()
    assert machine.kind == "cuda"
    assert machine.devices == torch.cuda.device_count()
    assert machine.memory_gb > 8
