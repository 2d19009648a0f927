"""A release as callers see it: promoted versions answer at once and everywhere, what does not do is not let in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner

from flows.cli import loopline as program
from models.errors import GateRefused, UsageError
from models.files import read_json, sha256, write_json
from models.serving.registry import FILES
from models.serving.releases import Canary, Release, ReleasePlan
from tasks.dashboard.acting import ActionRequest, carry_out
from tasks.host import server_access
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import aliased
from tasks.mlflow.release_plans import change, end, plan_of
from tasks.release.registry_jobs import give_back
from tasks.release.shared_state import SharedReleaseState
from tasks.state.champion_moves import champion_of, moves_of
from tasks.state.predictions import label_store
from tasks.state.shadows import shadow_log
from tests.callers import ROWS, Callers
from tests.conftest import MakeProject
from tests.mlflow_serving import serving
from tests.registered import register_served
from tests.served_models import write_served
from tests.serving import LiveServer, crown, live_server, register
from tests.wide import wide

PAUSE_S = 0.003
"""Between a caller's requests: still hundreds a second, and cores for the workers that change their version."""


def release(workspace: Workspace, name: str = "tiny") -> dict[str, Any]:
    return read_json(workspace.state / "projects" / name / "serving" / "release.json")


def changes(workspace: Workspace) -> list[str]:
    """The changes of the plan, newest first."""
    actions = [move.action for move in moves_of(workspace.state, "tiny")]
    return [action for action in actions if action not in ("promote", "rollback")]


def answering(server: LiveServer, name: str = "tiny", key: str = "") -> str:
    headers = {"x-request-id": key} if key else {}
    return str(server.post(f"/models/{name}/invocations", ROWS, **headers).ok().json["version"])


def wait_for(server: LiveServer, workspace: Workspace, name: str = "tiny", **wanted: Any) -> None:
    """Until the release says so, and the switch stands at it."""
    switch = workspace.state / "projects" / name / "serving" / "switch"

    def holds() -> bool:
        found = release(workspace, name)
        turned = int.from_bytes(switch.read_bytes(), sys.byteorder) == found.get("generation")
        return turned and {key: found.get(key) for key in wanted} == wanted

    server.wait_until(holds)


def enrol(workspace: Workspace, number: str, alias: str | None = "champion", **serve: Any) -> Path:
    """A registered version that this machine has not fetched yet; gives the folder of the store."""
    folder = workspace.root / "store" / number
    write_served(folder)
    write_json(folder / "spec.json", {"serve": serve})
    hashes = {path.name: sha256(path) for path in folder.iterdir()}
    register(workspace, "tiny", number, {FILES: json.dumps(hashes)}, folder, alias)
    return folder


def test_promotions_under_load_drop_and_mix_nothing(workspace: Workspace) -> None:
    crown(workspace, "tiny", "1")
    moves = []
    with live_server(workspace, "tiny", arguments=("--workers", "2")) as server:
        with Callers(server, 4, pause_s=PAUSE_S) as callers:
            for number in ("2", "3", "1", "2"):
                moves.append((time.monotonic(), number))
                crown(workspace, "tiny", number)
                wait_for(server, workspace, stable=number)
                server.wait_until(lambda number=number: callers.each[0][-1].version == number)
        assert callers.failed == 0
        assert {heard.version for heard in callers.all} == {"1", "2", "3"}
        assert callers.late(moves) == 0, "once one worker answered by the new version, none begins by the old one"


def test_a_worker_killed_or_hung_in_a_swap_stops_nothing(workspace: Workspace) -> None:
    crown(workspace, "tiny", "1")
    with live_server(workspace, "tiny", arguments=("--workers", "2")) as server:
        reports = workspace.state / "projects" / "tiny" / "serving" / "workers"
        server.wait_until(lambda: len(list(reports.glob("*.json"))) == 2)
        killed, hung = (process.pid for process in server.workers())
        os.kill(hung, signal.SIGSTOP)  # uvicorn ends one that does not answer it for five seconds
        try:
            crown(workspace, "tiny", "2")
            path = workspace.state / "projects" / "tiny" / "serving" / "next.json"
            server.wait_until(path.exists)
            os.kill(killed, signal.SIGKILL)
            wait_for(server, workspace, stable="2")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(hung, signal.SIGCONT)
        server.wait_until(lambda: {killed, hung}.isdisjoint(one.pid for one in server.workers()))
        server.wait_until(lambda: answering(server) == "2")
        assert {answering(server) for _ in range(20)} == {"2"}


def test_what_is_damaged_or_does_not_load_is_refused_and_the_old_one_goes_on(workspace: Workspace) -> None:
    enrol(workspace, "1")
    with live_server(workspace, "tiny") as server, Callers(server, 1, pause_s=PAUSE_S) as callers:
        for number, spoil, said in (
            ("2", "damaged", "model.onnx is changed in the store"),
            ("3", "missing", "preparation.json is missing in the store"),
            ("4", "no model", "ONNX Runtime cannot run it"),
            ("5", "no hashes", "nothing says what its files should be"),
        ):
            folder = enrol(workspace, number, None)
            if spoil == "damaged":
                (folder / "model.onnx").write_bytes(b"tampered")
            elif spoil == "missing":
                (folder / "preparation.json").unlink()
            elif spoil == "no model":
                (folder / "model.onnx").write_bytes(b"nonsense")
            hashes = {path.name: sha256(path) for path in folder.iterdir()} if spoil == "no model" else None
            tags = {} if hashes is None else {FILES: json.dumps(hashes)}
            tags = {FILES: "{}"} if spoil == "no hashes" else tags
            register(workspace, "tiny", number, tags, folder, "champion")
            server.wait_until(lambda number=number: number in release(workspace)["refused"])
            assert said in release(workspace)["refused"][number]
            server.wait_until(lambda number=number: number in server.get("/version").json["tiny"]["refused"])
            assert f"version {number} is refused" in server.printed
            assert (release(workspace)["stable"], answering(server)) == ("1", "1")
        enrol(workspace, "6")
        wait_for(server, workspace, stable="6", refused={})
    assert callers.failed == 0


def test_a_file_of_the_cache_that_was_changed_is_brought_again(workspace: Workspace) -> None:
    enrol(workspace, "1")
    with live_server(workspace, "tiny"):
        pass
    cached = workspace.cache / "models" / "tiny" / "1" / "model.onnx"
    whole = cached.read_bytes()
    cached.write_bytes(b"tampered")
    with live_server(workspace, "tiny") as server:
        assert answering(server) == "1"
        assert cached.read_bytes() == whole


def test_of_two_servers_of_a_workspace_one_leads_and_the_other_takes_its_place(workspace: Workspace) -> None:
    crown(workspace, "tiny", "1")
    with live_server(workspace, "tiny") as first, live_server(workspace, "tiny") as second:
        crown(workspace, "tiny", "2")
        wait_for(first, workspace, stable="2")
        assert (answering(first), answering(second)) == ("2", "2")
        assert "version 2 answers" not in second.printed
        first.end(signal.SIGKILL)
        crown(workspace, "tiny", "3")
        wait_for(second, workspace, stable="3")
        assert answering(second) == "3"


@pytest.mark.wide  # test_server.py
def test_a_project_without_a_champion_waits_for_one(workspace: Workspace) -> None:
    with live_server(workspace, "tiny", ready=False) as server:
        assert server.get("/ping").status == 503
        refused = server.post("/models/tiny/invocations", ROWS)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        enrol(workspace, "1")
        server.wait_until(lambda: server.get("/ping").status == 200)
        assert answering(server) == "1"


@pytest.fixture(scope="module", autouse=True)  # before any test's own environment, which it would bring back
def _module_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@contextlib.contextmanager
def registry_of(kind: str, workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A real registry, embedded or MLflow's own server; gives its process, if it has one."""
    if kind == "embedded":
        shutil.copytree(empty_store, workspace.state / "mlflow")
        yield None
        return
    other = Workspace(workspace.root / "elsewhere")
    other.make()
    shutil.copytree(empty_store, other.state / "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other.state / 'mlflow' / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOWED_SCHEMES", "http,https")
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
    monkeypatch.setenv("MLFLOW_WEBHOOK_CACHE_TTL", "0")
    with serving(other) as (url, process):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for name, value in server_access.credentials(other, {}).items():
            monkeypatch.setenv(name, value)
        yield process


@pytest.mark.parametrize("kind", ["embedded", wide("server")])
def test_a_real_registry_is_followed_and_may_go_away(
    workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with registry_of(kind, workspace, empty_store, monkeypatch) as process:
        for number in ("1", "2", "3"):
            register_served(workspace, "tiny", number)
        registry = open_registry(workspace, "tiny")
        registry.promote("1", None)
        store = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_TRACKING_")}
        with live_server(workspace, "tiny", LOOPLINE_WEBHOOK_SECRET="s3cret", **store) as server:
            assert answering(server) == "1"
            if process is not None:
                hook = f"{server.url}/webhooks/mlflow"
                client().create_webhook("loopline", hook, ["model_version_alias.created"], secret="s3cret")
            registry.promote("2", "1")
            wait_for(server, workspace, stable="2", previous="1")
            if process is not None:
                server.wait_until(lambda: "tiny: MLflow says that something changed" in server.printed)
            assert server.post("/webhooks/mlflow", {}).status == 401
            registry.rollback()
            wait_for(server, workspace, stable="1")
            plan = change(registry, ReleasePlan(canary=Canary(version="3", share=0.5)), "canary", "ada").plan
            wait_for(server, workspace, canary=plan.model_dump()["canary"])
            by_key = {key: answering(server, key=key) for key in map(str, range(30))}
            assert set(by_key.values()) == {"1", "3"}
            assert by_key == {key: answering(server, key=key) for key in by_key}, "sticky by the caller's id"
            end(registry, "enough")
            wait_for(server, workspace, canary=None)
            assert changes(workspace) == ["end", "canary"]
            if process is not None:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
                process.wait()
                assert answering(server) == "1"
        if process is not None:
            with live_server(workspace, "tiny", **store) as server:
                assert answering(server) == "1", "a cold start without the registry"


def test_a_canary_that_does_not_do_gives_its_share_back_and_the_registry_hears_of_it(
    workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower than its own spec allows: any answer is."""
    with registry_of("embedded", workspace, empty_store, monkeypatch):
        register_served(workspace, "tiny", "1")
        register_served(workspace, "tiny", "2", {"return_on": {"latency_ms": 1e-6}})
        registry = open_registry(workspace, "tiny")
        registry.promote("1", None)
        plan = change(registry, ReleasePlan(canary=Canary(version="2", share=0.5)), "canary", "ada").plan
        with live_server(workspace, "tiny") as server:
            wait_for(server, workspace, canary=plan.model_dump()["canary"])
            with Callers(server, 1, pause_s=PAUSE_S) as callers:
                wait_for(server, workspace, canary=None)
                assert "took longer than 1e-06 ms a row" in release(workspace)["returned"]["2"]
                server.wait_until(lambda: release(workspace)["returned"] == {})
            assert callers.failed == 0
        assert changes(workspace) == ["return", "canary"]
        assert "took longer than 1e-06 ms a row" in moves_of(workspace.state, "tiny")[0].reason


def test_the_registry_is_told_of_a_return_once_and_only_while_it_still_names_the_version(
    workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry_of("embedded", workspace, empty_store, monkeypatch):
        for number in ("1", "2", "3"):
            register_served(workspace, "tiny", number)
        registry = open_registry(workspace, "tiny")
        give_back(workspace, "tiny", "2", "errors")
        registry.promote("1", None)
        registry.promote("2", "1")
        for _ in range(2):
            give_back(workspace, "tiny", "2", "errors")
        assert champion_of(workspace.state, "tiny").number == "1"
        assert [(entry.action, entry.reason) for entry in registry.journal()][2:] == [
            ("rollback", "returned by the server: errors")
        ]
        with pytest.raises(GateRefused, match="nothing to roll back to"):
            give_back(workspace, "tiny", "1", "errors")
        registry.promote("2", "1")
        give_back(workspace, "tiny", "2", "errors", "an earlier promotion")
        assert champion_of(workspace.state, "tiny").number == "2", "a late server ends nothing that it did not see"
        give_back(workspace, "tiny", "2", "errors", registry.journal()[-1].promotion)
        assert champion_of(workspace.state, "tiny").number == "1"
        canary = change(registry, ReleasePlan(canary=Canary(version="3", share=0.1)), "canary", "ada").plan.canary
        assert canary is not None
        give_back(workspace, "tiny", "3", "errors", "an earlier trial")
        assert plan_of(aliased("tiny")).canary == canary
        give_back(workspace, "tiny", "3", "errors", canary.trial)
        assert plan_of(aliased("tiny")) == ReleasePlan()
        change(registry, ReleasePlan(shadow="3"), "shadow", "ada")
        registry.promote("2", "1")
        registry.rollback()
        champion = aliased("tiny")
        assert champion is not None
        assert plan_of(champion) == ReleasePlan(), "a plan of the last time that it was champion is over"
        with pytest.raises(UsageError, match="version 1 is the champion"):
            change(registry, ReleasePlan(shadow="1"), "shadow", "ada")
        with pytest.raises(UsageError, match="tiny has no version '9': there is 1, 2"):
            change(registry, ReleasePlan(shadow="9"), "shadow", "ada")


def test_a_person_tries_a_version_and_sees_how_it_does(
    workspace: Workspace, empty_store: Path, monkeypatch: pytest.MonkeyPatch, make_project: MakeProject
) -> None:
    """The shadow's answers and their labels are there already: no server runs."""
    project = make_project("tiny")
    state = project.state("tiny")

    def loopline(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(program, ["release", "tiny", *arguments])
        return getattr(done.exception, "exit_code", done.exit_code), done.output

    with registry_of("embedded", workspace, empty_store, monkeypatch):
        assert loopline("--canary", "0.1", "--version", "2")[0] == 2, "there is no champion yet"
        shutil.copytree(register_served(workspace, "tiny", "1"), workspace.cache / "models" / "tiny" / "1")
        open_registry(workspace, "tiny").promote("1", None)
        assert loopline("--end")[0] == 3, "nothing is tried"
        for wrong in (["--canary", "1"], ["--version", "2"], ["--end", "--return"], ["--shadow"]):
            assert loopline(*wrong)[0] == 2, wrong
        shutil.copytree(register_served(workspace, "tiny", "2"), workspace.cache / "models" / "tiny" / "2")
        assert "10% by version 2" in loopline("--canary", "0.1")[1]
        assert "10% by version 2 and version 2 as a shadow" in loopline("--shadow")[1]
        seen = moves_of(workspace.state, "tiny")[0].number
        clicks = [ActionRequest(action=action, model="tiny", move=seen) for action in ("return", "end")]
        first, second = (carry_out(workspace, click) for click in clicks)  # two people had the same page open
        assert (first.done, second.done) == (True, False)
        assert "somebody changed the release meanwhile (return: )" in second.text
        click = ActionRequest(action="canary", model="tiny", version="2", share=0.1, move=seen + 1, reason="Ada")
        assert carry_out(workspace, click).text.startswith("Version 2 answers 10% of the requests")
        assert not carry_out(workspace, click).done
        shadow = ActionRequest(action="shadow", model="tiny", version="2", move=seen + 2)
        assert carry_out(workspace, shadow).done
        SharedReleaseState(state / "serving").publish(
            Release(generation=1, stable="1", canary=Canary(version="2", share=0.1), shadow="2", refused={"7": "why"})
        )
        _compare(state, 60)
        code, said = loopline()
        assert code == 0
        for line in ("1        stable       90%", "2        canary       10%", "7        refused       0%"):
            assert line in said
        assert "shadow 2 on the last 60 predictions" in said
        assert "same class       50.00%" in said
        assert "1 against 0.5: +0.5" in said
        told = json.loads(loopline("--json")[1])
        assert (told["plan"]["shadow"], told["comparison"]["num_labelled"]) == ("2", 60)
        assert "champion 1; workers here" in loopline("--return", "--reason", "enough")[1]
        assert moves_of(workspace.state, "tiny")[0].reason == "enough"
        assert loopline("--return")[0] == 3, "one champion so far"


def _compare(state: Path, count: int) -> None:
    """So many predictions, half of them wrong, with a shadow that is right each time; their labels."""
    ids = [str(number) for number in range(count)]
    right = [float(number % 2) for number in range(count)]
    answered = [float(number % 4 > 1) for number in range(count)]
    now = pa.array([datetime.now(UTC)] * count, pa.timestamp("us", tz="UTC"))
    shadow_log(state, "2").append(pa.table({"id": ids, "at": now, "score": answered, "shadow.score": right}))
    labels = ["yes" if value else "no" for value in right]
    label_store(state).append(pa.table({"id": ids, "at": now, "label": labels, "by": ["ada"] * count}))
