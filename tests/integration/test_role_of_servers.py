"""The rights that the guide gives to the Postgres role of servers are enough for one, and end there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from models.errors import StoreError
from models.serving.registry import FILES
from tasks.host import database, processes
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tasks.release import controller
from tasks.release.controller import ReleaseController
from tasks.release.deployment import deployed, exchange
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tasks.state import champion_moves
from tests.postgres import is_installed, new_database, postgres
from tests.serving import crown, register

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "postgres.md"


@pytest.fixture
def owner(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a database for its owner, whose role for servers is `loopline_server`."""
    with postgres() as address:
        owner = new_database(address, "roles")
        monkeypatch.setenv(STATE_URL, owner)
        crown(workspace, "tiny", "1")
        (rights,) = re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        with psycopg.connect(owner) as connection:
            connection.execute(rights)
        yield owner


def test_a_server_follows_counts_and_rolls_back_with_the_rights_of_its_role(
    workspace: Workspace, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_server = owner.replace("loopline@", "loopline_server@")
    monkeypatch.setattr(controller, "try_out", lambda *_: None)
    monkeypatch.setenv(STATE_URL, as_server)
    lead = ReleaseController(ServerSettings(str(workspace.root), ("tiny",)), "tiny")
    monkeypatch.setattr(lead._background, "give_back", lambda *_: None)
    try:
        for number in ("1", "2"):
            monkeypatch.setenv(STATE_URL, owner)
            crown(workspace, "tiny", number)
            register(workspace, "tiny", "3", {FILES: "{}"}, workspace.root, "challenger")
            monkeypatch.setenv(STATE_URL, as_server)
            lead.step()
            lead.guard()
        assert lead.exchange is not None
        exchange([lead.exchange])
        found = deployed(workspace.state / "projects" / "tiny")
        assert found is not None
        assert (found.release.stable, found.release.away, lead.watcher.challenger()) == ("2", "", "3")
        tallies = {"2": VersionOutcomes(answers=50, failed=50)}
        lead.release_state.report(WorkerReport(process=processes.identity(), loaded=["1", "2"], tallies=tallies))
        for _ in range(2):
            lead.guard()
        exchange([lead.exchange])
        found = deployed(workspace.state / "projects" / "tiny")
        assert found is not None
        assert found.release.stable == "1"
    finally:
        lead.end()
    with (
        pytest.raises(StoreError, match="permission denied for table champion_moves"),
        database.writing(workspace.state) as connection,
    ):
        champion_moves.record(connection, "tiny", 3, action="promote", before="2", after="3")
