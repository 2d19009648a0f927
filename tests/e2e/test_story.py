"""Three months of flights against the running platform, some of which is killed on the way: `make story`.

It takes minutes, so it is for `make soak`. Each of its parts has a test of every day: the platform, its kills and what
new data begins (`test_platform.py`), rejected data (`test_bad_input.py`), labels and monitoring (`test_feedback.py`).
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.story import play
from models.errors import StoreError
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.history import read_loops
from tasks.platform.service_main import marked
from tasks.platform.services import services_of
from tests.running import ROOT, assert_gone, assert_unlocked, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(300)]

ROWS = 3000


@pytest.fixture(scope="module")
def months() -> dict[str, Any]:
    """The flights of each month, from the cache that the project `flights` has filled, else from its registry."""
    try:
        found: dict[str, Any] = play.year(ROOT / ".loopline" / "cache" / "sources", ROWS)
    except StoreError as error:
        pytest.skip(f"the flights cannot be fetched here: {error}")
    return found


@pytest.fixture(scope="module")
def player(months: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The platform with January's champion; the months go on in the order of the tests."""
    made = play.Player(tmp_path_factory.mktemp("story") / "home")
    try:
        made.begin(months["2013-01"])
        yield made
    finally:
        made.loopline("down", "--force")


def state(player: Any) -> Path:
    return player.home / ".loopline" / "projects" / "flights"


def test_a_month_goes_round_by_itself_though_worker_and_server_are_killed(player: Any, months: dict[str, Any]):
    before = player.status()
    assert before["champion"] == "1"
    player.month("2013-02", months["2013-02"])
    player.arrive("2013-02", months["2013-02"])
    eventually(lambda: player.status()["state"] == "running")
    for service in services_of(Workspace(player.home)):
        if service.name in ("worker", "prefect") and service.pid:
            os.kill(service.pid, signal.SIGKILL)
    after = player.wait(before)
    assert after["state"] == "finished"
    loops = read_loops(state(player))
    assert [loop.trigger for loop in loops if loop.outcome in ("promoted", "kept")] == ["person", "new_data"]
    decided = [made for made in decisions.read(state(player)) if made.signal.kind == "new_data"]
    assert {made.action for made in decided} == {"retrain"}
    assert len({made.signal.id for made in decided}) == 1


def test_a_month_with_its_units_swapped_is_kept_out(player: Any, months: dict[str, Any]):
    before = player.status()
    player.month("2013-03", months["2013-03"])
    player.arrive("2013-03", play.swapped(months["2013-03"]))
    told = player.wait(before)
    assert (told["state"], told["light"], told["champion"]) == ("rejected", "red", before["champion"])
    assert "distance" in told["light_reason"]
    kept = list((state(player) / "quarantine" / told["loop_id"]).rglob("failing_rows.parquet"))
    assert len(kept) == 1
    assert read_loops(state(player))[-1].outcome == "rejected"


def test_the_mended_month_is_taken_in(player: Any, months: dict[str, Any]):
    before = player.status()
    player.arrive("2013-03", months["2013-03"])
    told = player.wait(before)
    assert told["state"] == "finished"
    assert told["loop_id"] != before["loop_id"]
    assert told["light"] != "red"


def test_what_was_predicted_is_watched(player: Any):
    def watched() -> bool:
        path = state(player) / "monitoring" / "monitoring.json"
        return path.exists() and json.loads(path.read_text())["num_labels"] == 2 * ROWS

    eventually(watched)
    assert json.loads((state(player) / "monitoring" / "monitoring.json").read_text())["num_predictions"] == 2 * ROWS


def test_the_overview_shows_all_of_it(player: Any):
    services = {service.name: service for service in services_of(Workspace(player.home))}
    token = token_path(Workspace(player.home)).read_text().strip()
    address = f"{services['overview'].url}/projects/flights"
    asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        page = answer.read().decode()
    status = player.status()
    assert f"<dt>version</dt><dd>{status['champion']}</dd>" in page
    for words in ("rejected", "promoted", "roc_auc"):
        assert words in page
    assert services["worker"].restarts
    assert services["worker"].state == "running"


def test_down_leaves_nothing(player: Any):
    player.loopline("down", "--wait")
    assert not list(marked(Workspace(player.home)))
    assert_gone(player.home)
    assert_unlocked(player.home, "flights")
