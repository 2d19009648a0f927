import pytest
import torch

from models.training.costs.devices import device_peak, find_device, known_devices, measured_peak, peak_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100 32 GB"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_a_drivers_name_finds_its_device(name, expected):
    found = find_device(name)
    assert found is not None
    assert found.name == expected


def test_a_stranger_is_not_guessed():
    assert find_device("NVIDIA GeForce RTX 9999") is None
    assert find_device("NVIDIA L400") is None


def test_fp32_runs_on_tensor_cores_only_where_allowed():
    h100 = known_devices()["H100"]
    assert peak_of(h100, "fp32") == 67e12
    assert peak_of(h100, "fp32", "high") == 494e12
    assert peak_of(h100, "bf16") == 989e12
    assert peak_of(known_devices()["V100"], "bf16") is None


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
