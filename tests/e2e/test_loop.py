"""A user's first day, in order: the whole loop, nothing to do, plans, a winner, a loser, going back, the tools."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import psutil
import pytest

from models.pipeline.steps import STEPS
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer
from tests.preloaded import PICTURES
from tests.running import PROMISED_S, ROOT, Loopline, begin_prefect, flow_runs, leftovers, write_program

pytestmark = pytest.mark.e2e

WEAK = ("-s", "search.trials=0", "-s", "train.epochs=1", "-s", "train.lr=0.0001", "-s", "goal.good_enough=0.2")
HEAVY = {"torch", "pandas", "numpy", "pyarrow", "mlflow", "prefect", "great_expectations", "optuna", "sklearn", "dvc"}
DATA_STEPS = ("ingest", "validate-raw", "prepare", "validate-prepared", "version")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path):
    """A workspace outside of any git repository, with its own Prefect server; and the penguins as they are shipped."""
    environ = {"LOOPLINE_SERVER_IDLE_S": "300"}
    made = Loopline(tmp_path_factory.mktemp("first-day") / "home", environ)
    shutil.copytree(ROOT / "projects" / "penguins", made.home / "projects" / "penguins", ignore=lambda *_: ["data"])
    begin_prefect(made.home, empty_prefect)
    yield made
    made.stop()


def planned(home: Loopline, *settings: str, project: str = "penguins") -> dict[str, dict]:
    return {item["step"]: item for item in home("plan", project, "--json", *settings).ok().json}


def spec_of(home: Loopline) -> Path:
    return home.home / "projects" / "penguins" / "project.yaml"


def test_a_first_run_goes_the_whole_way_round(home: Loopline):
    ended = home("run", "penguins", "-s", "search.trials=2", "-s", "train.epochs=12", **{PICTURES: "drawn"}).ok()
    for word in ("penguins version 1: promoted", "accuracy", "baseline", "rows", "DVC", "champion", "card", "report"):
        assert word in ended.out
    card = Path(re.search(r"^  card +(\S+)$", ended.out, re.MULTILINE)[1])
    assert "<html" in card.read_text()[:200].lower()
    assert len(re.findall(r"data:image/svg\+xml;base64,[\w+/]{2000,}", card.read_text())) >= 5, "its pictures are drawn"
    assert [line.split()[0] for line in ended.err.splitlines() if line.endswith("...")] == [step.name for step in STEPS]
    assert home.versions("penguins") == [1]
    assert home.aliases("penguins") == {"champion": 1}


def test_one_loop_id_names_it_in_every_tool(home: Loopline):
    loop_id = home.book("penguins")["loop_id"]
    assert {record["loop_id"] for record in home.records("penguins").values()} == {loop_id}
    runs = home.runs()
    assert runs == {loop_id: "FINISHED", f"{loop_id}/trial-0": "FINISHED", f"{loop_id}/trial-1": "FINISHED"}
    assert set(flow_runs(json.loads(home("status", "--json").out)["prefect"], loop_id, home.home).values()) == {
        "COMPLETED"
    }
    searched = home.record("penguins", "search")
    assert searched["result"]["study"] == f"penguins-{searched['key'][:16]}"
    tags = home.tags("penguins", 1)
    assert tags["loopline.loop_id"] == loop_id
    assert tags["loopline.dataset"] == home.record("penguins", "version")["result"]["prepared"]
    assert tags["loopline.weights_sha256"] == home.record("penguins", "train")["result"]["weights_sha256"]
    assert {"spec", "code", "seed", "world_size", "verdict"} <= {name.removeprefix("loopline.") for name in tags}


def test_prefect_shows_a_command_line_run_as_a_run_of_the_platform(home: Loopline):
    api, loop_id = json.loads(home("status", "--json").out)["prefect"], home.book("penguins")["loop_id"]
    (run,) = flow_runs(api, loop_id, home.home)
    assert {"loopline", "penguins"} <= set(ask(api, f"flow_runs/{run}", None, "GET")["tags"])
    of_run = {"flow_runs": {"id": {"any_": [run]}}, "limit": 200}
    artifacts = {artifact["key"]: artifact for artifact in ask(api, "artifacts/filter", of_run)}
    assert {"penguins-card", "penguins-verdict", "penguins-validation-raw", "train-progress"} <= set(artifacts)
    tasks = {task["id"]: task["name"] for task in ask(api, "task_runs/filter", of_run)}
    owners = {key: tasks[artifact["task_run_id"]] for key, artifact in artifacts.items()}
    assert (owners["penguins-card"], owners["penguins-verdict"]) == ("card", "promote")
    assert f"http://127.0.0.1:4300/projects/penguins/loops/{loop_id}/card" in str(artifacts["penguins-card"]["data"])
    assert not any("file://" in str(artifact["data"]) for artifact in artifacts.values())
    assert artifacts["train-progress"]["data"] == 100
    logs = ask(api, "logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200})
    messages = [line["message"] for line in logs]
    assert any(message.startswith("train 12/12 val_loss") for message in messages)
    assert any(message.startswith("search 2/2 trial 1") for message in messages), "of another thread"
    assert any(message.startswith("judge took") for message in messages)


def test_then_there_is_nothing_to_do_and_nothing_heavy_is_started(home: Loopline):
    home.stop()
    settings = ("-s", "search.trials=2", "-s", "train.epochs=12")
    ended = home("run", "penguins", "--json", *settings, PYTHONPROFILEIMPORTTIME="1").ok()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in ended.err.splitlines()}
    assert "flows" in imported
    assert imported & HEAVY == set()
    assert PrefectServer(Workspace(home.home)).state() is None
    psutil.wait_procs(psutil.Process().children(), timeout=PROMISED_S)
    assert leftovers(home.home) == []
    told = ended.json
    assert not told["ran"]
    assert told["decision"] == "promote"
    assert told["version"] == told["champion"] == "1"
    assert told["metrics"]["val_loss"] > 0
    assert 0.9 <= told["metrics"]["test_accuracy"] <= 1
    assert home("run", "penguins", *settings).ok().out.startswith("Nothing to do")
    assert {item["state"] for item in planned(home, *settings).values()} == {"done"}


def test_the_plan_names_the_input_that_changed(home: Loopline):
    settings = ("-s", "search.trials=2", "-s", "train.epochs=12")
    told = planned(home, "-s", "search.trials=2", "-s", "train.epochs=13")
    assert {told[step]["state"] for step in DATA_STEPS} == {"done"}
    assert any("train.epochs" in reason for reason in told["search"]["reasons"])

    table = home.home / "projects" / "penguins" / "penguins.csv"
    before = table.read_bytes()
    table.write_bytes(before.replace(b"3750", b"3751", 1))
    told = planned(home, *settings)
    assert any("penguins.csv" in reason for reason in told["ingest"]["reasons"])
    table.write_bytes(before)

    (name,) = home.record("penguins", "export")["outputs"].keys() - {
        name for name in home.record("penguins", "export")["outputs"] if not name.endswith(".onnx")
    }
    graph = home.home / name
    content = graph.read_bytes()
    graph.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert any("output changed" in reason for reason in planned(home, *settings)["export"]["reasons"])
    graph.unlink()
    assert any("output missing" in reason for reason in planned(home, *settings)["export"]["reasons"])
    graph.write_bytes(content)
    assert {item["state"] for item in planned(home, *settings).values()} == {"done"}


def test_a_model_that_loses_is_kept_out(home: Loopline):
    ended = home("run", "penguins", *WEAK, "--json")
    assert ended.code == 3, ended.err[-3000:]
    told = ended.json
    assert told["decision"] == "keep"
    assert told["version"] == "2"
    assert told["champion"] == "1"
    assert told["value"] < told["champion_value"]
    assert home.aliases("penguins") == {"champion": 1, "challenger": 2}
    again = home("run", "penguins", *WEAK)
    assert again.code == 3
    assert "Nothing to do" in again.out
    assert "not promoted" in again.out


def test_a_person_may_promote_and_go_back(home: Loopline):
    refused = home("promote", "penguins", "2", "--expect", "7")
    assert refused.code == 3
    assert "champion is version 1" in refused.err
    assert home.aliases("penguins")["champion"] == 1
    home("promote", "penguins", "2", "--expect", "1", "--reason", "a trial").ok()
    assert home.aliases("penguins") == {"champion": 2, "previous": 1}


@pytest.mark.wide
def test_a_better_model_wins(home: Loopline):
    ended = home("run", "penguins", "-s", "search.trials=0", "-s", "train.epochs=8", "--json").ok()
    assert ended.json["decision"] == "promote"
    assert ended.json["champion"] == "3"
    assert ended.json["value"] > ended.json["champion_value"]
    assert home.aliases("penguins") == {"champion": 3, "previous": 2}
    home("rollback", "penguins").ok()
    assert home.aliases("penguins")["champion"] == 2


def test_a_person_goes_back_to_the_first_champion(home: Loopline):
    home("rollback", "penguins", "--reason", "further").ok()
    assert home.aliases("penguins")["champion"] == 1
    nothing = home("rollback", "penguins")
    assert nothing.code == 3
    assert "nothing to roll back to" in nothing.err
    assert "Traceback" not in nothing.err


def test_status_shows_the_champion(home: Loopline):
    (told,) = home("status", "penguins", "--json").ok().json["projects"]
    assert told["champion"] == "1"
    assert told["state"] == "finished"
    assert "penguins" in home("status").ok().out


@pytest.mark.wide
def test_the_tools_own_programs_read_what_was_made(home: Loopline):
    loop_id = home.book("penguins")["loop_id"]
    experiment = home.query("select experiment_id from experiments where name = 'penguins'")[0][0]
    assert loop_id in home.tool("mlflow", "runs", "list", "--experiment-id", str(experiment)).ok().out
    assert "up to date" in home.tool("dvc", "status").ok().out
    assert "prepare@penguins" in home.tool("dvc", "dag").ok().out
    assert loop_id in home.tool("prefect", "flow-run", "ls").ok().out


@pytest.mark.wide
def test_after_dvc_repro_a_run_has_nothing_to_prepare(home: Loopline, tmp_path: Path, monkeypatch):
    spec_of(home).write_text(spec_of(home).read_text().replace("drop: [year]", "drop: [year, island]"))
    assert planned(home)["prepare"]["state"] == "run"
    assert "changed" in home.dvc("status").ok().out
    write_program(tmp_path)
    monkeypatch.setitem(home.environ, "PATH", f"{tmp_path}{os.pathsep}{home.environment['PATH']}")
    home.dvc("repro", "prepare@penguins").ok()
    assert "up to date" in home.dvc("status").ok().out
    told = planned(home)
    assert {told[step]["state"] for step in ("ingest", "validate-raw", "prepare")} == {"done"}
    shutil.rmtree(home.home / "projects" / "penguins" / "data")
    assert planned(home)["ingest"]["reasons"][0].startswith("output missing")
    home.dvc("checkout").ok()
    assert planned(home)["prepare"]["state"] == "done"


def test_nothing_is_left_behind(home: Loopline):
    assert "nothing to put right" in home("reap").ok().out
    assert leftovers(home.home) == []
    assert any(home.home.iterdir())
