"""supervisord itself, with a service that cannot start: back-off, its words, its end; no server is needed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host import processes, stores
from tasks.host.workspace import Workspace
from tasks.platform import platform, supervision
from tasks.platform.service_main import marked
from tasks.platform.services import _exits, supervisor
from tests.running import eventually

BROKEN = "nonesuch"


def start(workspace: Workspace) -> dict[str, object]:
    environ = {**os.environ, **stores.environment(workspace)}
    return supervision.start(workspace, workspace.platform, [BROKEN], environ)


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace at a path that is too long for a socket; its platform is ended whatever happens."""
    made = Workspace(tmp_path / ("deep" * 25))
    made.make()
    yield made
    platform.stop(made)


def test_what_cannot_start_is_tried_again_with_back_off_and_said(deep: Workspace) -> None:
    note = start(deep)

    def state() -> str:
        with supervision.connected(str(note["socket"])) as supervised:
            return str(supervised.getProcessInfo(BROKEN)["statename"])

    eventually(lambda: len(_exits(deep.platform / "supervisord.log").get(BROKEN, [])) >= 2)
    eventually(lambda: state() == "BACKOFF")
    with supervision.connected(str(note["socket"])) as supervised:
        supervision.start_service(supervised, BROKEN)  # supervisord is about to start it, or has just begun
        with pytest.raises(StoreError, match="unwanted: supervisord cannot start it: BAD_NAME"):
            supervision.start_service(supervised, "unwanted")
    with pytest.raises(ConnectionError, match="BAD_NAME"), supervision.connected(str(note["socket"])) as supervised:
        supervised.getProcessInfo("unwanted")
    assert set(_exits(deep.platform / "supervisord.log")[BROKEN]) == {"exit status 1"}
    assert "StopIteration" in (deep.platform / "logs" / f"{BROKEN}.log").read_text()
    assert supervisor(deep) == note
    assert platform.stop(deep)
    assert not processes.is_alive(note["process"])  # type: ignore[arg-type]
    assert supervisor(deep) is None
    assert not Path(str(note["socket"])).exists()
    assert list(marked(deep)) == []


def test_a_supervisord_that_hangs_is_told_and_ended(deep: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    note = start(deep)
    process: dict[str, int] = note["process"]  # type: ignore[assignment]
    os.kill(process["pid"], signal.SIGSTOP)
    with pytest.raises(StoreError, match=r"does not answer.*`loopline down`"):
        platform.start(deep, {})
    monkeypatch.setattr(platform, "DOWN_TIMEOUT_S", 1.0)
    assert platform.stop(deep)
    eventually(lambda: not processes.is_alive(process))
