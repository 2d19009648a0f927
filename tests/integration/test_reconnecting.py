"""A restart of Postgres for less than a lease's length ends no loop, and commands that show something do not wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from models.errors import StoreError
from models.project_spec.search import Search
from tasks.host.leases import leased
from tasks.host.store_addresses import OPTUNA_STORAGE, STATE_URL, store_addresses
from tasks.host.workspace import Workspace
from tasks.loop.history import PastLoop, read_loops, record_loop
from tasks.tools.optuna_study import open_study, reaching_studies, trials_of
from tests.postgres import is_installed, new_database, postgres_server

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


def test_a_holder_of_a_lease_waits_for_a_restart_and_others_hear_at_once(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a loop has computed is not lost because Postgres is restarted, as for a new minor version."""
    state = workspace.state / "projects" / "grown"
    with postgres_server() as own:
        studies = {OPTUNA_STORAGE: new_database(own.address, "optuna")}
        monkeypatch.setenv(STATE_URL, new_database(own.address, "state"))
        monkeypatch.setenv(OPTUNA_STORAGE, store_addresses(studies)[OPTUNA_STORAGE])

        @contextlib.contextmanager
        def away() -> Iterator[None]:
            own.stop()
            start = threading.Timer(0.5, own.start)
            start.start()
            yield
            start.join()

        with leased(workspace.state, "loop:grown") as lease:
            study = open_study(workspace, "grown", Search.model_validate({"sampler": "random"}), "maximize", {})
            with away():
                record_loop(state, PastLoop(loop_id="l1", began=1.0, ended=2.0, outcome="kept"))
            with away():
                lease.confirm()
            with away(), reaching_studies():
                assert trials_of(study) == []
        assert [loop.loop_id for loop in read_loops(state)] == ["l1"]
        own.stop()
        with pytest.raises(StoreError, match="cannot be used"):
            read_loops(state)
        own.start()
