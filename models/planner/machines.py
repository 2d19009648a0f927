"""A cluster for training: nodes, devices, memory and bandwidth, from a file, a preset or a device name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.cores import usable_cores
from models.errors import UsageError
from models.project_spec.blocks import Precision
from models.training.costs.devices import find_device, known_devices, measured_peak
from models.training.costs.speeds import MeasuredSpeed, efficiency_of

_NAME = re.compile(r"(?:(?P<nodes>\d+)x)?(?P<devices>\d+)x(?P<device>[A-Za-z]\w*)")
# GB/s one way for each device: NVLink within a node; between nodes, one network adapter per device (400, 200, 100 Gb/s
# minus a tenth). Source: data sheets of the HGX and DGX boards.
_NVLINK = {"B200": 900.0, "H200": 450.0, "H100": 450.0, "A100": 300.0, "V100": 150.0}
_NETWORK = {"B200": 45.0, "H200": 45.0, "H100": 45.0, "A100": 22.0, "V100": 11.0}
_PCIE = 25.0
_ETHERNET = 1.4
_GB = 1e9


class Cluster(BaseModel):
    """A cluster of equal nodes with equal devices. One rank uses one device, or its share of a CPU's cores."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field("own", description="What the plan calls it.")
    kind: Literal["cuda", "cpu"] = "cuda"
    device: str = Field(description="Known GPUs bring their own memory and peaks: H100, A100, ...; else any name.")
    nodes: int = Field(1, ge=1)
    devices: int = Field(8, ge=1, description="In each node.")
    memory_gb: float = Field(gt=0, description="Of one device, 1e9 bytes; of a CPU, each rank's share.")
    host_memory_gb: float | None = Field(None, gt=0, description="Of one node's own memory; None: not known.")
    peak_tflops: dict[Literal["fp32", "tf32", "bf16", "fp16"], float] = Field(
        default_factory=dict, description="Without that of the spec's precision no times are given."
    )
    within_gb_per_s: float = Field(gt=0, description="One way, for each device, inside a node (NVLink, PCIe).")
    between_gb_per_s: float = Field(gt=0, description="The same between nodes (InfiniBand, Ethernet).")
    latency_s: float = Field(3e-5, ge=0, description="Of one collective operation.")
    efficiency: float = Field(0.4, gt=0, le=1, description="Share of the peak that a step is taken to reach.")
    efficiency_origin: str = Field("an assumption", description="Where the efficiency comes from, for the plan's page.")

    @model_validator(mode="before")
    @classmethod
    def _known_device(cls, named: Any) -> Any:
        """Fill in the known values of a device by its name."""
        if not isinstance(named, dict):
            return named
        device = find_device(str(named.get("device")))
        if device is None:
            return named
        within, between = _NVLINK.get(device.name, _PCIE), _NETWORK.get(device.name, _ETHERNET)
        links = {"within_gb_per_s": within, "between_gb_per_s": between}
        peaks = {key: value / 1e12 for key, value in device.peaks.items()}
        return {"memory_gb": float(device.memory_gb), "peak_tflops": peaks, **links, **named}

    def learnt_from(
        self, speeds: Sequence[MeasuredSpeed], precision: str, net: str, compiled: bool, processor: str | None
    ) -> Cluster:
        """Return the same cluster with the efficiency of earlier jobs on such a device, if there were any.

        Args:
            speeds: What they measured.
            precision: Resolved.
            net: Name in the catalogue, or the reference of an own net.
            compiled: Whether the net will be compiled.
            processor: The name of this machine's processor if the cluster is this machine, else None.
        """
        names = {
            speed.device for speed in speeds if (device := find_device(speed.device)) and device.name == self.device
        }
        for name in [processor] if self.kind == "cpu" and processor else sorted(names | {self.device}):
            learnt = efficiency_of(speeds, name, precision, net, compiled)
            if learnt is not None:
                origin = learnt.origin(name, precision, net)
                return self.model_copy(update={"efficiency": min(1.0, learnt.share), "efficiency_origin": origin})
        return self

    @property
    def world_size(self) -> int:
        """The number of ranks with one rank per device."""
        return self.nodes * self.devices

    def precision(self, precision: Precision) -> Precision:
        """Return the precision with `auto` resolved for a device of this cluster; an unknown GPU counts as new."""
        if precision != "auto":
            return precision
        if self.kind == "cpu":
            return "fp32"
        return "fp16" if "bf16" not in self.peak_tflops and "fp16" in self.peak_tflops else "bf16"

    def peak(self, precision: Precision) -> float | None:
        """Return the FLOP/s of one device in a resolved precision; None if it has no value."""
        peaks = {str(name): value for name, value in self.peak_tflops.items()}
        value = peaks.get("fp32" if precision == "fp32-exact" else precision)
        if precision == "fp32":
            value = peaks.get("tf32", value)
        return None if value is None else value * 1e12


LAPTOP = Cluster(
    name="laptop",
    kind="cpu",
    device="cpu",
    nodes=1,
    devices=4,
    memory_gb=4.0,
    peak_tflops={"fp32": 0.1},
    within_gb_per_s=1.2,
    between_gb_per_s=0.1,
    latency_s=2.7e-4,
    efficiency=0.5,
)
PRESETS = ("8xH100", "8xH200", "8xA100", "2x8xH100", "laptop")


def read_machine(text: str) -> Cluster:
    """Return the cluster of a preset (`8xH100`, `2x8xA100`, `laptop`) or of a YAML or JSON file.

    Raises:
        UsageError: The text is neither a preset nor a file, or the file has an unknown key or a wrong value.
    """
    if text == "laptop":
        return LAPTOP
    path = Path(text)
    if path.suffix in (".yaml", ".yml", ".json"):
        return _of_file(path)
    named = _NAME.fullmatch(text)
    device = find_device(named["device"]) if named else None
    if named is None or device is None:
        raise UsageError(
            f"--cluster: got {text!r}, expected detect, a file ending in .yaml or .json, laptop, or "
            f"[NODES x] DEVICES x NAME such as {', '.join(PRESETS[:4])}, of {', '.join(known_devices())}"
        )
    fields = {"name": text, "device": device.name, "nodes": int(named["nodes"] or 1), "devices": int(named["devices"])}
    return _checked(fields, f"--cluster {text}")


def detect_machine(precision: Precision = "auto") -> Cluster:
    """Return all GPUs of this machine; without a GPU its cores, one per rank, with their shares of the memory.

    The peak of a CPU is measured in fp32, and in bf16 if `precision` says so.

    The links between GPUs are those of the known device, else PCIe. The links between CPU ranks are those of gloo, as
    measured on one machine.
    """
    import psutil
    import torch

    if torch.cuda.is_available():
        return _gpus()
    count = min(psutil.cpu_count(logical=False) or 1, usable_cores())
    threads = max(1, usable_cores() // count)
    types = ("fp32", "bf16") if precision == "bf16" else ("fp32",)
    return LAPTOP.model_copy(
        update={
            "name": f"this machine, {count} x CPU",
            "devices": count,
            "memory_gb": psutil.virtual_memory().total / _GB / count,
            "peak_tflops": {name: (measured_peak(threads, name) or 0.0) / 1e12 for name in types},
        }
    )


def _gpus() -> Cluster:
    import psutil
    import torch

    name = torch.cuda.get_device_name(0)
    device = find_device(name)
    fields = {
        "name": f"this machine, {torch.cuda.device_count()} x {name}",
        "device": device.name if device else name,
        "devices": torch.cuda.device_count(),
        "memory_gb": torch.cuda.get_device_properties(0).total_memory / _GB,
        "host_memory_gb": psutil.virtual_memory().total / _GB,
    }
    links = {} if device else {"within_gb_per_s": _PCIE, "between_gb_per_s": _ETHERNET}
    return Cluster.model_validate({**fields, **links})


def _of_file(path: Path) -> Cluster:
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"--cluster: {path}: cannot be read ({error.strerror}): name a file that is there") from error
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        values = json.loads(text) if path.suffix == ".json" else YAML(typ="safe").load(text)
    except (ValueError, YAMLError) as error:
        raise UsageError(f"{path}: cannot be parsed ({error}): expected one mapping of keys to values") from error
    return _checked(values, str(path))


def _checked(values: Any, display_name: str) -> Cluster:
    try:
        return Cluster.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UsageError(
            f"{display_name}: {where}: {first['msg']}; expected the keys {', '.join(Cluster.model_fields)}"
        ) from error
