"""Detects the machine of this process, as a cluster of one node."""

from __future__ import annotations

import psutil
import torch

from models.cores import usable_cores
from models.planner.machines import LAPTOP, Cluster
from models.training.costs.devices import find_device
from models.training.costs.peak import measured_peak

_GB = 1e9


def detect_machine() -> Cluster:
    """Return all GPUs of this machine; without a GPU its cores, one per rank, with their shares of the memory.

    The links between GPUs are those of the known device, else PCIe. The links between CPU ranks are those of gloo, as
    measured on one machine.
    """
    if torch.cuda.is_available():
        return _gpus()
    count = min(psutil.cpu_count(logical=False) or 1, usable_cores())
    threads = max(1, usable_cores() // count)
    peak = measured_peak(threads) or 0.0
    return LAPTOP.model_copy(
        update={
            "name": f"this machine, {count} x CPU",
            "devices": count,
            "memory_gb": psutil.virtual_memory().total / _GB / count,
            "peak_tflops": {"fp32": peak / 1e12},
        }
    )


def _gpus() -> Cluster:
    name = torch.cuda.get_device_name(0)
    known = find_device(name)
    fields = {
        "name": f"this machine, {torch.cuda.device_count()} x {name}",
        "device": known.name if known else name,
        "devices": torch.cuda.device_count(),
        "memory_gb": torch.cuda.get_device_properties(0).total_memory / _GB,
        "host_memory_gb": psutil.virtual_memory().total / _GB,
    }
    links = {} if known else {"within_gb_per_s": 25.0, "between_gb_per_s": 1.4}
    return Cluster.model_validate({**fields, **links})
