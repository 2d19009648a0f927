"""The ranks of a job as torch's named device mesh. Every process group is a view of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.project_spec.parallel_dims import DIMENSIONS, ParallelDims

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Mesh:
    """The layout, and the device mesh of those of its dimensions that are in use; none for one process."""

    layout: ParallelDims
    whole: DeviceMesh | None = None

    @classmethod
    def of(cls, layout: ParallelDims, device: torch.device) -> Mesh:
        """Make the process groups of a layout. Every rank must call it."""
        names = tuple(name for name in DIMENSIONS if getattr(layout, name) > 1 or name in _always(layout))
        if layout.size == 1:
            return cls(layout)
        from torch.distributed.device_mesh import init_device_mesh

        # On gathering weights that two plans have cut, torch warns of a second message.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        shape = tuple(getattr(layout, name) for name in names)
        return cls(layout, init_device_mesh(device.type, shape, mesh_dim_names=names))

    def has(self, name: str) -> bool:
        """True when there are several ranks along a dimension, or the plan uses it all the same."""
        return self.whole is not None and name in (self.whole.mesh_dim_names or ())

    def view(self, *names: str) -> DeviceMesh:
        """The mesh of those named dimensions that are in use, in the order given."""
        assert self.whole is not None
        present = tuple(name for name in names if self.has(name))
        return self.whole[present]

    def group(self, name: str) -> ProcessGroup | None:
        """The peers of this rank along one dimension; None when it is alone there."""
        if not self.has(name):
            return None
        assert self.whole is not None
        return self.whole.get_group(name)

    def describe(self) -> dict[str, int]:
        """Ranks along each dimension in use."""
        if self.whole is None:
            return {}
        return dict(zip(self.whole.mesh_dim_names or (), self.whole.shape, strict=True))


def _always(layout: ParallelDims) -> tuple[str, ...]:
    return ("shard",) if "fsdp" in layout.plan or layout.plan == "hsdp" else ()
