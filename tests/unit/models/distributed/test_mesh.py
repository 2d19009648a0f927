import torch

from models.distributed.mesh import Mesh
from models.project_spec.parallel_dims import ParallelDims


def test_one_process_has_no_mesh_and_no_peers():
    mesh = Mesh.of(ParallelDims(), torch.device("cpu"))
    assert mesh.whole is None
    assert not mesh.has("shard")
    assert mesh.group("replicate") is None
    assert mesh.describe() == {}
