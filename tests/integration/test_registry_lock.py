"""The lock between machines that share a registry: one holder, whatever the order in which a stale lock is broken."""

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store
from tasks.mlflow import registry as registry_module
from tasks.mlflow.delivery import client

if TYPE_CHECKING:
    from mlflow import MlflowClient


def test_a_stale_lock_that_two_break_at_once_lets_one_in(tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced order: C looks at a dead machine's lock, B breaks it and holds it, then C breaks what it saw."""
    embedded_store.initialise(tracked)
    store, name = client(), "m.loopline-lock"
    dead = {"host": "dead", "pid": 1, "started": 1.0, "at": time.time() - 400}
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
        monkeypatch.setattr(registry_module, "LOCK_TIMEOUT_S", -1.0)
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
            second.enter_context(registry_module._shared_lock(store, name))
            held = store.get_registered_model(name).tags
        assert store.get_registered_model(name).tags == held
    assert store.search_registered_models(f"name = '{name}'") == []
