import pytest

from models.training.costs.devices import find_device, known_devices, peak_of


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
