import pytest
from pydantic import ValidationError

from tasks.ranks.launcher import Shape
from tasks.ranks.torchrun import Torchrun, torchrun


def test_the_command_is_the_same_on_every_node(tmp_path):
    command = torchrun(tmp_path / "my job", Shape((2, 4), 8, 1, 3), "2:4", "10.0.0.1:29400", "id")
    assert "-m torch.distributed.run --nnodes=2:4 --nproc-per-node=8 --max-restarts=3 " in command
    assert command.endswith(f"/models/launch.py models.training.node '{tmp_path}/my job'")


def test_a_person_is_the_scheduler(tmp_path):
    place = Torchrun(engine="torchrun", head="10.0.0.1:29400")
    assert place.state("0123") == "ended"
    said = place.submit("0123", tmp_path, Shape((2, 2), 1, 1, 3))
    assert said.startswith("on each of 2 machine(s)")
    assert "--rdzv-endpoint=10.0.0.1:29400 --rdzv-id=loopline-0123" in said
    assert place.state("0123") == "running"
    place.cancel("0123")
    assert place.state("0123") == "ended"
    with pytest.raises(ValidationError):
        Torchrun(engine="torchrun", head="10.0.0.1")
