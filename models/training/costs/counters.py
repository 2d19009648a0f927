"""Counters of the machine: the time that a device worked, peak memory, energy. Missing counters return None."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import time
from pathlib import Path

import torch

_RESET_PEAK = "5"
_RAPL = Path("/sys/class/powercap")
_STATUS = Path("/proc/self/status")


def device_clock(device: torch.device) -> float:
    """Return seconds of which a later reading less this one is what the device did for this process.

    On a CPU those of all cores, of this process and its ended children. A GPU is held, so it counts as long as it is.
    """
    if device.type == "cuda":
        return time.perf_counter()
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def reset_peak(device: torch.device) -> None:
    """Reset the peak memory counter, if the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory since `reset_peak` in 1e6 bytes: tensors on a GPU; all resident memory on a CPU.

    Source: VmHWM of Linux's /proc; elsewhere the peak of the whole process (getrusage).
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    with contextlib.suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


class EnergyCounter:
    """Counts the joules that a device has used: a GPU by NVML; the CPU packages of this machine by RAPL.

    RAPL counts the whole machine with all its processes, so only one rank per machine may add it.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpu = _nvml_device(device) if device.type == "cuda" else None
        self._zones = [] if device.type == "cuda" else _readable_zones()
        self._last = [int(zone.read_text()) for zone in self._zones]
        self._wrapped = 0
        self._start = self._reading()

    def joules(self) -> float | None:
        """Return the joules since this object was made; None if the device has no counter."""
        now = self._reading()
        return None if now is None or self._start is None else now - self._start

    def _reading(self) -> float | None:
        if self._gpu is not None:
            library, handle = self._gpu
            millijoules = ctypes.c_ulonglong()
            failed = library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules))
            return None if failed else millijoules.value / 1e3
        if not self._zones:
            return None
        readings = [int(zone.read_text()) for zone in self._zones]
        for zone, before, now in zip(self._zones, self._last, readings, strict=True):
            if now < before:
                self._wrapped += int((zone.parent / "max_energy_range_uj").read_text())
        self._last = readings
        return (sum(readings) + self._wrapped) / 1e6


def _readable_zones() -> list[Path]:
    """Return the counters of whole packages, which include their parts (cores, memory)."""
    zones = []
    for zone in sorted(_RAPL.glob("intel-rapl:[0-9]*/energy_uj")):
        with contextlib.suppress(OSError, ValueError):
            if zone.parent.name.count(":") == 1:
                int(zone.read_text())
                zones.append(zone)
    return zones


def _nvml_device(device: torch.device) -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    handle = ctypes.c_void_p()
    name = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(handle)):
        return None
    return library, handle
