"""supervisord itself, with a service that cannot start: back-off, its words, its end; no server is needed."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from models.errors import StoreError
from models.files import write_json
from tasks.host import ports, processes, stores
from tasks.host.workspace import Workspace
from tasks.platform import platform, services, supervision
from tasks.platform.service_main import marked
from tasks.platform.services import _exits, supervisor
from tests.running import eventually

BROKEN = "nonesuch"
ON_DEMAND = ("mlflow", "optuna")
"""Services that only listen until somebody connects."""


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


def test_a_supervisord_that_was_killed_leaves_nothing_and_the_next_has_its_ports(deep: Workspace) -> None:
    """All services at once are killed so in `tests/e2e/test_platform.py`."""
    chosen = {name: ports.any_free([]) for name in ON_DEMAND}
    write_json(deep.platform / "ports.json", {"requested": {}, "ports": chosen})
    environ = {**os.environ, **stores.environment(deep)}
    for _ in range(2):
        note = supervision.start(deep, deep.platform, list(ON_DEMAND), environ)
        eventually(lambda: all(listens(deep, name) for name in ON_DEMAND))
        assert services.ports(deep) == chosen
        os.kill(note["process"]["pid"], signal.SIGKILL)
        eventually(lambda: list(marked(deep)) == [])


def test_platforms_that_chose_the_same_ports_get_ports_of_their_own(tmp_path: Path) -> None:
    """The worst of two that start at once: each found the ports free, before either of them listened."""
    chosen = {name: ports.any_free([]) for name in ON_DEMAND}
    workspaces = [Workspace(tmp_path / name) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for workspace in workspaces:
            workspace.make()
            write_json(workspace.platform / "ports.json", {"requested": {}, "ports": chosen})
            environ = {**os.environ, **stores.environment(workspace)}
            stack.callback(platform.stop, workspace)
            supervision.start(workspace, workspace.platform, list(ON_DEMAND), environ)
        eventually(lambda: all(listens(workspace, name) for workspace in workspaces for name in ON_DEMAND))
        found = [port for workspace in workspaces for port in services.ports(workspace).values()]
        assert len(set(found)) == len(workspaces) * len(ON_DEMAND), found


def listens(workspace: Workspace, name: str) -> bool:
    """Whether a process of this platform listens at the port where the service is said to be."""
    note = supervisor(workspace)
    assert note is not None
    ours = psutil.Process(note["process"]["pid"]).children()
    return any(
        connection.status == psutil.CONN_LISTEN and connection.laddr.port == services.ports(workspace)[name]
        for process in ours
        for connection in process.net_connections("tcp4")
    )
