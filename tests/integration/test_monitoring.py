"""The `monitor` flow on a real Prefect server: its state, its artifacts, and what it says while there is nothing."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactCollectionFilter, ArtifactCollectionFilterKey
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)

from flows.commands.monitor import command
from flows.monitor import in_words, monitor
from tests.conftest import MakeProject
from tests.watched import SPEC, World


@pytest.fixture
def client(api: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    monkeypatch.setenv("PREFECT_API_URL", api)
    secret = os.environ["PREFECT_API_AUTH_STRING"]
    quiet = {PREFECT_API_URL: api, PREFECT_API_AUTH_STRING: secret, PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(quiet), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def world(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(make_project(f"watched-{secrets.token_hex(3)}", spec=SPEC), monkeypatch)


def artifacts(client: SyncPrefectClient, name: str) -> dict[str, str]:
    newest = ArtifactCollectionFilter(key=ArtifactCollectionFilterKey(like_=f"{name}-monitor"))
    found = client.read_latest_artifacts(artifact_collection_filter=newest)
    return {str(one.key).removeprefix(f"{name}-"): str(one.data) for one in found}


@pytest.mark.wide
def test_a_look_ends_in_words_and_leaves_its_findings_on_the_page(world: World, client: SyncPrefectClient) -> None:
    name = world.project.folder.name
    state = monitor(name, return_state=True)
    assert (state.name, state.is_completed()) == ("Well", True)
    assert "no whole window yet" in state.message
    world.label(world.predict(1000), right=False)
    state = monitor(name, return_state=True)
    assert (state.name, state.is_completed()) == ("Alarmed", True)
    assert state.result()["champion"] == "1"
    told = artifacts(client, name)
    assert told["monitor"].startswith("# 🔴 roc_auc")
    assert [row["labels"] for row in json.loads(told["monitor-windows"])] == [500, 500]
    assert "monitoring.html" in told["monitor-page"]


def test_words_tell_the_drift_and_the_notes(world: World) -> None:
    world.predict(500, shift=0.8)
    told = in_words(world.look().model_copy(update={"notes": ["A note."]}))
    assert "| wind |" in told
    assert "- A note." in told


def test_the_command_tells_windows_and_page_or_all_of_it_as_json(world: World) -> None:
    world.label(world.predict(1000))
    name = world.project.folder.name
    told = CliRunner().invoke(command, [name], catch_exceptions=False)
    assert told.exit_code == 0
    assert f"{name}: nothing unusual" in told.output
    assert "1/500" in told.output
    assert "roc_auc 0.8" in told.output
    found = json.loads(CliRunner().invoke(command, [name, "--json"], catch_exceptions=False).output)
    assert (found["state"], found["champion"], found["num_labels"]) == ("green", "1", 1000)
    assert found["page"].endswith("monitoring/monitoring.html")
