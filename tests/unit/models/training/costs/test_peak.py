import pytest
import torch

from models.training.costs.devices import find_device, peak_of
from models.training.costs.peak import device_peak, measured_peak


@pytest.mark.skipif(torch.cuda.is_available(), reason="ranks would take the GPU")
def test_a_cpu_is_measured_and_the_number_of_threads_stays():
    before = torch.get_num_threads()
    peak = measured_peak(1)
    assert peak is not None
    assert 1e9 < peak < 1e13
    assert measured_peak(1, "fp16") is None
    assert torch.get_num_threads() == before


def test_a_cpus_peak_is_not_looked_up():
    assert device_peak(torch.device("cpu"), "fp32") is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_known_gpu_is_looked_up():
    device = torch.device("cuda", 0)
    found = find_device(torch.cuda.get_device_name(device))
    assert device_peak(device, "bf16") == (peak_of(found, "bf16") if found else None)
