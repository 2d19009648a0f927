"""The lock between machines that share a registry: one holder, whatever the order in which a stale lock is broken."""

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from models.errors import StoreError
from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
from tasks.mlflow import registry as registry_module
from tasks.mlflow.client import client

if TYPE_CHECKING:
    from mlflow import MlflowClient


def test_a_stale_lock_that_two_break_at_once_lets_one_in(tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced order: C looks at a dead machine's lock, B breaks it and holds it, then C breaks what it saw."""
    embedded_store.initialise(tracked)
    store, name = client(), "m.loopline-lock"
    monkeypatch.setattr(registry_module, "STALE_LOCK_S", 0.0)
    dead = {"host": "dead", "pid": 1, "started": 1.0}
    store.create_registered_model(name, tags={"loopline.holder": json.dumps(dead)})
    seen = store.get_registered_model(name)

    class Late:
        """C's client: it saw the stale lock."""

        def get_registered_model(self, _: str) -> Any:
            return seen

        def __getattr__(self, method: str) -> Any:
            return getattr(store, method)

    shared_lock = registry_module._shared_lock
    with shared_lock(store, name):
        held = store.get_registered_model(name).tags
        monkeypatch.setattr(registry_module, "LOCK_TIMEOUT_S", 1.0)
        with pytest.raises(StoreError, match="held"), shared_lock(cast("MlflowClient", Late()), name):
            pass
        assert store.get_registered_model(name).tags == held
    assert store.search_registered_models(f"name = '{name}'") == []


def test_a_holder_whose_lock_was_broken_releases_nothing_of_the_next_one(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded_store.initialise(tracked)
    store, name = client(), "m.loopline-lock"
    with contextlib.ExitStack() as second:
        with registry_module._shared_lock(store, name):
            monkeypatch.setattr(registry_module, "STALE_LOCK_S", -1.0)
            monkeypatch.setattr(processes, "is_here", lambda _: False)
            second.enter_context(registry_module._shared_lock(store, name))
            held = store.get_registered_model(name).tags
        assert store.get_registered_model(name).tags == held
    assert store.search_registered_models(f"name = '{name}'") == []


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_wrong_clock_of_another_machine_breaks_no_lock(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    embedded_store.initialise(tracked)
    store, name, now = client(), "m.loopline-lock", time.time
    monkeypatch.setattr(registry_module, "LOCK_TIMEOUT_S", -registry_module.STALE_LOCK_S + 1.0)
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours)
    elsewhere = {**processes.identity(), "host": "elsewhere", "pids": "other"}
    with monkeypatch.context() as other:
        other.setattr(processes, "identity", lambda: elsewhere)
        first = registry_module._shared_lock(store, name)
        first.__enter__()
    monkeypatch.setattr(time, "time", now)
    with pytest.raises(StoreError, match="held by other machines"), registry_module._shared_lock(store, name):
        pytest.fail("two holders")
    first.__exit__(None, None, None)
    with registry_module._shared_lock(store, name):
        pass
