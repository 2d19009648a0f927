import pytest
import torch
from safetensors.torch import load_file, save_file

from models.data.preparation import Preparation
from models.errors import StoreError
from models.nets.sizes import Sizes
from models.training.checkpoints.weights import load_net, save_weights, weights_sha256
from models.training.job import WEIGHTS_FILE
from models.training.rank import run_job


def test_the_hash_is_of_the_tensors_alone(tmp_path):
    tensors = {"b": torch.ones(3), "a": torch.arange(4)}
    first = save_weights(tmp_path / "one.safetensors", tensors)
    save_file(dict(reversed(tensors.items())), tmp_path / "two.safetensors", metadata={"by": "another"})
    assert weights_sha256(tmp_path / "two.safetensors") == first
    assert save_weights(tmp_path / "three.safetensors", {**tensors, "b": torch.zeros(3)}) != first
    assert save_weights(tmp_path / "four.safetensors", {"c": tensors["b"], "a": tensors["a"]}) != first


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 64])
def test_what_is_no_safetensors_file_says_so(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read as safetensors"):
        weights_sha256(tmp_path / "w")


def test_tied_and_turned_weights_are_kept(tmp_path):
    ends_with_parent = torch.arange(6.0).view(2, 3)
    save_weights(tmp_path / "w", {"a": ends_with_parent, "b": ends_with_parent, "turned": ends_with_parent.T})
    found = load_file(tmp_path / "w")
    assert torch.equal(found["a"], found["b"])
    assert torch.equal(found["turned"], ends_with_parent.T)


def test_the_net_of_a_finished_job_comes_back(make_job):
    job = make_job(arguments={"hidden": 8})
    run_job(job)
    sizes = Sizes.of(Preparation.load(job.prepared))
    net = load_net(job.model, sizes, job.project, job.folder / WEIGHTS_FILE)
    assert not net.training
    other = job.model.model_copy(update={"arguments": {"hidden": 9}})
    with pytest.raises(StoreError, match="not the weights of mlp"):
        load_net(other, sizes, job.project, job.folder / WEIGHTS_FILE)
