import json

import psutil
import pytest
import torch

from models.errors import UsageError
from models.planner.machines import LAPTOP, PRESETS, detect_machine, read_machine
from models.training.costs.speeds import MeasuredSpeed


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_machine(name):
    machine = read_machine(name)
    assert machine.name == name
    assert machine.world_size >= 4


def test_a_name_says_nodes_devices_and_what_they_are():
    machine = read_machine("4x8xA100")
    assert (machine.nodes, machine.devices, machine.device, machine.memory_gb) == (4, 8, "A100", 80)
    assert machine.within_gb_per_s == 300
    assert machine.peak("bf16") == 312e12
    assert read_machine("8xV100").peak("bf16") is None


def test_a_file_may_say_it_all_or_lean_on_a_known_device(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("device: L4\ndevices: 4\nwithin_gb_per_s: 20\n")
    machine = read_machine(str(path))
    assert (machine.memory_gb, machine.within_gb_per_s, machine.devices) == (24, 20, 4)
    own = tmp_path / "cluster.json"
    own.write_text(json.dumps(LAPTOP.model_dump()))
    assert read_machine(str(own)) == LAPTOP


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("device: H100\nmemory: 80\n", "memory: Extra inputs are not permitted; expected the keys name, kind"),
        ("device: H100\ndevices: eight\n", "devices: Input should be a valid integer"),
        ("device: Own\n", "memory_gb: Field required"),
        ("device: [\n", "cannot be parsed"),
    ],
)
def test_a_wrong_file_says_which_key(tmp_path, text, said):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_machine(str(path))
    assert said in str(caught.value)
    assert "cluster.yaml" in str(caught.value)


def test_a_stranger_is_told_what_there_is(tmp_path):
    with pytest.raises(UsageError, match=r"got '8xZ9', expected detect, .*8xH100"):
        read_machine("8xZ9")
    with pytest.raises(UsageError, match="--cluster 0xH100: devices: Input should be greater than"):
        read_machine("0xH100")
    with pytest.raises(UsageError, match="cannot be read"):
        read_machine(str(tmp_path / "none.yaml"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="finds the GPUs instead")
def test_a_cpu_is_shared_by_its_ranks():
    machine = detect_machine()
    assert (machine.kind, machine.nodes) == ("cpu", 1)
    assert machine.memory_gb * machine.devices == pytest.approx(psutil.virtual_memory().total / 1e9)
    assert 1e9 < machine.peak("fp32") < 1e14
    assert machine.peak("bf16") is None
    assert detect_machine("bf16").peak("bf16") > 1e8


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpus_are_found_with_their_memory():
    machine = detect_machine()
    assert machine.kind == "cuda"
    assert machine.devices == torch.cuda.device_count()
    assert machine.memory_gb > 8


def test_the_efficiency_is_that_of_earlier_jobs_with_its_origin() -> None:
    reached = MeasuredSpeed(device="NVIDIA H100 80GB HBM3", precision="bf16", net="decoder", mfu=0.25)
    machine = read_machine("8xH100")
    assert machine.efficiency_origin == "an assumption"
    learnt = machine.learnt_from([reached], "bf16", "decoder", compiled=False, processor=None)
    assert learnt.efficiency == 0.25
    assert learnt.efficiency_origin == "learnt from 1 job with decoder in bf16 on NVIDIA H100 80GB HBM3"
    assert machine.learnt_from([reached], "fp32", "decoder", compiled=False, processor=None) is machine
    assert read_machine("8xA100").learnt_from([reached], "bf16", "decoder", False, None).efficiency == 0.4


def test_a_cpu_learns_only_from_its_own_jobs() -> None:
    reached = MeasuredSpeed(device="x86_64 EPYC x 2", precision="fp32", net="mlp", mfu=0.3)
    assert LAPTOP.learnt_from([reached], "fp32", "mlp", False, None).efficiency == LAPTOP.efficiency
    assert LAPTOP.learnt_from([reached], "fp32", "mlp", False, "x86_64 other x 4").efficiency == LAPTOP.efficiency
    assert LAPTOP.learnt_from([reached], "fp32", "mlp", False, "x86_64 EPYC x 2").efficiency == 0.3
