"""The peak FLOP/s of a device: looked up for a GPU, measured for a CPU."""

from __future__ import annotations

import time

import torch

from models.training.costs.devices import find_device, peak_of

_SIDE = 1024
_REPEATS = 5
_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measured_peak(threads: int, precision: str = "fp32") -> float | None:
    """Measure the FLOP/s of matrix products on this CPU: the best of a few runs, about 0.1 s in total.

    It divides by CPU seconds, so that other work on the machine does not lower the peak.

    Args:
        threads: Threads of one rank.
        precision: fp32 or bf16; CPUs compute in no other precision.

    Returns:
        The FLOP/s; None for other precisions, or if ranks use a GPU, whose peak is known by its name.
    """
    if precision not in _TYPES or torch.cuda.is_available():
        return None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        left = torch.ones(_SIDE, _SIDE, dtype=_TYPES[precision])
        best = 0.0
        for _ in range(_REPEATS):
            start = time.process_time()
            torch.mm(left, left)
            best = max(best, 2 * _SIDE**3 * threads / max(time.process_time() - start, 1e-9))
        return best
    finally:
        torch.set_num_threads(before)


def device_peak(device: torch.device, precision: str) -> float | None:
    """Return the peak FLOP/s of a known GPU in a precision; None for a CPU and for an unknown GPU."""
    if device.type != "cuda":
        return None
    device_facts = find_device(torch.cuda.get_device_name(device))
    return peak_of(device_facts, precision, torch.get_float32_matmul_precision()) if device_facts else None
