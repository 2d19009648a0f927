"""Devices for training: memory and peak FLOP/s by name; the peak of a CPU is measured.

Source: the makers' data sheets; tensor-core figures without sparsity. `tf32` is the peak of fp32 matmuls with torch's
matmul precision "high"; `fp32` is the peak of the units without tensor cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# The matrix products of a measurement: their sides and their number.
_SIDE = 1024
_REPEATS = 5


@dataclass(frozen=True)
class Device:
    """Facts of one kind of device.

    Attributes:
        name: The usual name.
        memory_gb: Memory in 1e9 bytes.
        peaks: Peak FLOP/s by precision (fp32, tf32, bf16, fp16).
    """

    name: str
    memory_gb: float
    peaks: dict[str, float] = field(default_factory=dict)


def _device(name: str, memory: float, **teraflops: float) -> Device:
    return Device(name, memory, {key: value * 1e12 for key, value in teraflops.items()})


# Searched in this order; all parts must be words of the driver's name.
_KNOWN: tuple[tuple[tuple[str, ...], Device], ...] = (
    (("B200",), _device("B200", 180, fp32=75, tf32=1100, bf16=2250, fp16=2250)),
    (("GH200",), _device("GH200", 96, fp32=67, tf32=494, bf16=989, fp16=989)),
    (("H200",), _device("H200", 141, fp32=67, tf32=494, bf16=989, fp16=989)),
    (("H100", "PCIe"), _device("H100 PCIe", 80, fp32=51, tf32=378, bf16=756, fp16=756)),
    (("H100", "NVL"), _device("H100 NVL", 94, fp32=60, tf32=417, bf16=835, fp16=835)),
    (("H100",), _device("H100", 80, fp32=67, tf32=494, bf16=989, fp16=989)),
    (("A100", "40GB"), _device("A100 40 GB", 40, fp32=19.5, tf32=156, bf16=312, fp16=312)),
    (("A100",), _device("A100", 80, fp32=19.5, tf32=156, bf16=312, fp16=312)),
    (("L40S",), _device("L40S", 48, fp32=91.6, tf32=183, bf16=362, fp16=362)),
    (("A10G",), _device("A10G", 24, fp32=31.5, tf32=35, bf16=70, fp16=70)),
    (("A10",), _device("A10", 24, fp32=31.2, tf32=62.5, bf16=125, fp16=125)),
    (("L4",), _device("L4", 24, fp32=30.3, tf32=60, bf16=121, fp16=121)),
    (("V100", "32GB"), _device("V100 32 GB", 32, fp32=15.7, fp16=125)),
    (("V100",), _device("V100", 16, fp32=15.7, fp16=125)),
    (("T4",), _device("T4", 16, fp32=8.1, fp16=65)),
)


def find_device(name: str) -> Device | None:
    """Return the known device for a driver's name such as `NVIDIA H100 80GB HBM3`; None if it is unknown.

    The peak of an unknown device is not guessed: MFU is then left out.
    """
    words = name.replace("-", " ").replace("_", " ").split()
    for parts, device in _KNOWN:
        if all(part in words for part in parts):
            return device
    return None


def known_devices() -> dict[str, Device]:
    """Return all known devices by name."""
    return {device.name: device for _, device in _KNOWN}


def peak_of(device: Device, precision: str, matmul: str = "highest") -> float | None:
    """Return the peak FLOP/s of matmuls in a precision of `train.precision`.

    Args:
        device: A known device.
        precision: fp32, fp32-exact, bf16 or fp16.
        matmul: torch's float32 matmul precision; anything but `highest` lets fp32 run on the tensor cores.
    """
    if precision == "fp32-exact":
        return device.peaks.get("fp32")
    if precision == "fp32" and matmul != "highest":
        return device.peaks.get("tf32", device.peaks.get("fp32"))
    return device.peaks.get(precision)


def measured_peak(threads: int, precision: str = "fp32") -> float | None:
    """Measure the FLOP/s of matrix products on this CPU: the best of a few runs, about 0.1 s in total.

    It divides by CPU seconds, so that other work on the machine does not lower the peak.

    Args:
        threads: Threads of one rank.
        precision: As `train.precision`; a CPU computes in bf16 or else in fp32.

    Returns:
        The FLOP/s; None for fp16, or if ranks use a GPU, whose peak is known by its name.
    """
    import torch

    if precision == "fp16" or torch.cuda.is_available():
        return None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        matrix = torch.ones(_SIDE, _SIDE, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
        best = 0.0
        for _ in range(_REPEATS):
            start = time.process_time()
            torch.mm(matrix, matrix)
            best = max(best, 2 * _SIDE**3 * threads / max(time.process_time() - start, 1e-9))
        return best
    finally:
        torch.set_num_threads(before)


def device_peak(device: torch.device, precision: str) -> float | None:
    """Return the peak FLOP/s of a known GPU in a precision; None for a CPU and for an unknown GPU."""
    if device.type != "cuda":
        return None
    import torch

    device_facts = find_device(torch.cuda.get_device_name(device))
    return peak_of(device_facts, precision, torch.get_float32_matmul_precision()) if device_facts else None
