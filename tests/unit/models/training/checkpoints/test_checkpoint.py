import errno
import json

import pytest
import torch

from models.distributed.world import World
from models.errors import StoreError
from models.training.checkpoints import checkpoint as module
from models.training.checkpoints.checkpoint import CheckpointDraft, newest, read_meta, write_alone
from models.training.checkpoints.shards import StoredCheckpoint


def write(folder, step, best=True, before=None, **more):
    tensors = {"net/a": torch.full((4,), float(step))} | ({"best/w": torch.ones(2)} if best else {})
    return write_alone(CheckpointDraft(folder, step, {"step": step}, before=before, **more), tensors)


def test_the_newest_is_read_and_so_many_are_kept(tmp_path):
    assert newest(tmp_path / "none", World()) is None
    last = None
    for step in (5, 10, 200):
        last = write(tmp_path, step, best=last is None, before=last)
    found = newest(tmp_path, World())
    assert found == last
    assert read_meta(found) == {"step": 200}
    room = {"net/a": torch.zeros(4), "best/w": torch.zeros(2)}
    StoredCheckpoint(found).load(room)
    assert room["net/a"].tolist() == [200.0] * 4
    assert room["best/w"].tolist() == [1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000010", "step-000000000200"]
    for step in (300, 400):
        write(tmp_path, step, keep=4)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("name", ["state-00000.safetensors", "state.json", "best-00000.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_changed_checkpoint_is_passed_over(tmp_path, name, harm):
    first = write(tmp_path, 1)
    file = write(tmp_path, 2) / name
    content = file.read_bytes()
    if harm == "remove":
        file.unlink()
    else:
        file.write_bytes(
            content[: len(content) // 2] + (b"" if harm == "cut" else b"\xff" + content[len(content) // 2 + 1 :])
        )
    assert newest(tmp_path, World()) == first


def test_a_changed_best_stays_changed_when_it_is_linked(tmp_path):
    first = write(tmp_path, 1)
    file = first / "best-00000.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    write(tmp_path, 2, best=False, before=first)
    assert newest(tmp_path, World()) is None


def test_a_full_disk_keeps_what_was_good(tmp_path, monkeypatch):
    first = write(tmp_path, 1)

    def full(path, tensors, note):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(module, "write_tensors", full)
    with pytest.raises(StoreError, match="disk is full"):
        write(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000000001"]
    assert newest(tmp_path, World()) == first


def test_what_a_killed_writer_left_is_no_hindrance(tmp_path):
    draft = CheckpointDraft(tmp_path, 3, {})
    draft.temporary.mkdir()
    (draft.temporary / "state-00007.safetensors").write_bytes(b"half")
    assert newest(tmp_path, World()) is None
    path = write(tmp_path, 3)
    assert newest(tmp_path, World()) == path
    assert set(json.loads((path / "manifest.json").read_text())) | {"manifest.json"} == {
        file.name for file in path.iterdir()
    }


def test_nothing_in_a_checkpoint_can_run_code(tmp_path):
    path = write(tmp_path, 1)
    assert {file.suffix for file in path.iterdir()} == {".json", ".safetensors"}
