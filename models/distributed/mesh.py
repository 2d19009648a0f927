"""The ranks of a job as torch's named device mesh; all process groups are views of it."""

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
    """The layout, and a device mesh of its dimensions in use; `whole` is None for one process."""

    layout: ParallelDims
    whole: DeviceMesh | None = None

    @classmethod
    def of(cls, layout: ParallelDims, device: torch.device) -> Mesh:
        """Make the process groups of a layout. Every rank must call it."""
        always = "shard" if "fsdp" in layout.plan or layout.plan == "hsdp" else None
        names = tuple(name for name in DIMENSIONS if getattr(layout, name) > 1 or name == always)
        if layout.size == 1:
            return cls(layout)
        from torch.distributed.device_mesh import init_device_mesh

        # Torch warns of a second message when it gathers weights that two plans have split.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        shape = tuple(getattr(layout, name) for name in names)
        return cls(layout, init_device_mesh(device.type, shape, mesh_dim_names=names))

    def has(self, name: str) -> bool:
        """Return whether a dimension has several ranks, or the plan always uses it."""
        return self.whole is not None and name in (self.whole.mesh_dim_names or ())

    def view(self, *names: str) -> DeviceMesh:
        """Return the mesh of those of the named dimensions that are in use, in this order."""
        assert self.whole is not None
        present = tuple(name for name in names if self.has(name))
        return self.whole[present]

    def group(self, name: str) -> ProcessGroup | None:
        """Return the group of this rank's peers along one dimension; None if it has no peers there."""
        if not self.has(name):
            return None
        assert self.whole is not None
        return self.whole.get_group(name)

    def describe(self) -> dict[str, int]:
        """Return the number of ranks along each dimension in use."""
        if self.whole is None:
            return {}
        return dict(zip(self.whole.mesh_dim_names or (), self.whole.shape, strict=True))
