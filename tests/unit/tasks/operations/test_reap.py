"""The reaper: what the dead left is put right, what lives is left alone (real stores: integration/test_loop.py)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from models.errors import LeaseLostError, StoreError
from models.project_spec.reader import read_spec
from models.training.job import JOB_FILE, RESULT_FILE
from tasks.host import database, processes
from tasks.host.locks import is_held
from tasks.host.processes import OWNER
from tasks.host.tables import leases, runners
from tasks.host.workspace import Workspace
from tasks.loop.history import LOOP_LOCK, LoopRecord, is_owed, last_loop, lease_of, read_loops, save_loop
from tasks.loop.lifecycle import open_stage
from tasks.loop.outcome import conclude_killed
from tasks.loop.runners import dead_runners
from tasks.operations.reap import reap
from tasks.prefect import events, flow_runs, prefect_server
from tasks.ranks.launcher import key_of_folder, name_of
from tasks.state.outbox import LOOP_RUN, Outbox
from tasks.state.workspace_id import workspace_id
from tests.absent_tool import away
from tests.children import started
from tests.conftest import MakeProject

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@pytest.fixture
def state(workspace: Workspace, make_project: MakeProject) -> Path:
    """The state of a project whose loop was killed."""
    project = make_project()
    made = project.state("tiny")
    dead = {**processes.identity(), "started": 1.0}
    made.mkdir(parents=True)
    save_loop(made, LoopRecord("tiny-1", "running", "i", str(project.folder), dead))
    return made


def the_loop(state: Path) -> LoopRecord:
    loop = last_loop(state)
    assert loop is not None
    return loop


def test_nothing_to_put_right(workspace: Workspace, make_project: MakeProject) -> None:
    make_project()
    assert reap(workspace) == []


def test_a_dead_loop_is_marked_once(workspace: Workspace, state: Path) -> None:
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]
    assert the_loop(state).state == "killed"
    assert reap(workspace) == []


def test_what_is_no_project_is_left_alone(workspace: Workspace, state: Path) -> None:
    (state.parent / "notes.txt").write_text("mine")
    (state.parent / "lost+found").mkdir()
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]
    assert list((state.parent / "lost+found").iterdir()) == []


def test_a_file_in_the_place_of_a_projects_folder_is_named(workspace: Workspace, state: Path) -> None:
    state.rename(state.with_name("moved"))
    state.write_text("")
    with pytest.raises(StoreError, match=r"projects/tiny"):
        reap(workspace)


@pytest.mark.parametrize("mark", ["[]", "3", "{", '{"workspace": 1}', '{"workspace": "ROOT", "host": 1}'])
def test_whatever_another_process_says_of_its_owner_ends_no_pass(workspace: Workspace, state: Path, mark: str) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environ = {**os.environ, OWNER: mark.replace("ROOT", str(workspace.root))}
    with started(command, env=environ, **PIPES) as process:
        process.stdout.readline()
        assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]
        assert process.poll() is None


def test_the_end_of_a_killed_loop_is_recorded_though_the_reaper_is_killed_too(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tasks.operations.reap.save_loop", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            reap(workspace)
    assert the_loop(state).state == "running"
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]
    assert [(loop.loop_id, loop.outcome) for loop in read_loops(state)] == [("tiny-1", "failed")]


def test_a_living_loop_is_left_alone(workspace: Workspace, state: Path, make_project: MakeProject) -> None:
    (state / ".half.tmp").write_text("")
    with open_stage(make_project()):
        assert reap(workspace) == []
    assert the_loop(state).state == "running"
    assert (state / ".half.tmp").exists()


ELSEWHERE = {"host": "macbook.office.lan", "pid": os.getpid(), "started": "deadbeef/1"}


def test_a_loop_that_died_under_the_hosts_earlier_name_is_marked(workspace: Workspace, state: Path) -> None:
    save_loop(state, replace(the_loop(state), process=ELSEWHERE))
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]
    assert the_loop(state).state == "killed"


def test_a_loop_that_another_host_runs_is_left_alone(
    workspace: Workspace, state: Path, make_project: MakeProject
) -> None:
    save_loop(state, replace(the_loop(state), process=ELSEWHERE))
    project = make_project()
    spec = read_spec(project.spec_path)
    assert is_owed(workspace, spec)
    with open_stage(project):
        assert reap(workspace) == []
        assert not is_owed(workspace, spec)
    assert the_loop(state).state == "running"


def test_another_projects_dead_loop_is_not_this_ones_business(workspace: Workspace, state: Path) -> None:
    assert reap(workspace, "other") == []
    assert the_loop(state).state == "running"


def test_half_written_files_and_folders_go(workspace: Workspace, state: Path) -> None:
    data = Path(the_loop(state).folder) / "data"
    (data / ".prepared.x.tmp").mkdir(parents=True)
    (data / ".prepared.x.tmp" / "rows").write_text("")
    (state / "work" / "train").mkdir(parents=True)
    (state / "work" / "train" / ".key.json.abc.tmp").write_text("")
    (state / "work" / "train" / "kept.json").write_text("")
    said = reap(workspace)
    assert sum("half-written" in line for line in said) == 2
    assert list(data.iterdir()) == []
    assert [path.name for path in (state / "work" / "train").iterdir()] == ["kept.json"]


def test_contexts_of_great_expectations_whose_writer_was_killed_go(workspace: Workspace) -> None:
    for name in ("gx-linked", "gx-left", "gx-written"):
        (workspace.state / name / "expectations").mkdir(parents=True)
        age = 0 if name == "gx-written" else 7200
        os.utime(workspace.state / name, (time.time() - age, time.time() - age))
    workspace.expectations.symlink_to("gx-linked")
    assert reap(workspace) == ["gx-left: half-written; removed"]
    assert sorted(path.name for path in workspace.state.glob("gx*")) == ["gx", "gx-linked", "gx-written"]


def test_what_a_living_process_writes_without_the_loops_lock_stays(workspace: Workspace, state: Path) -> None:
    """A prediction, a label or a monitoring run may be under way as the next loop begins."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    logs = ("predictions", "labels", "predictions/_delta_log", "labels/_delta_log")
    for folder in (*logs, "serving/predictions", "serving/labels"):
        (state / folder).mkdir(parents=True, exist_ok=True)
        (state / folder / f".{dead.pid}-0123456789ab.tmp").write_text("of another host, perhaps")
    (state / "monitoring").mkdir()
    for writer, age in (("1-abcdefgh", 0), (f"{dead.pid}-abcdefgh", 0), ("1-stuvwxyz", 7200), ("unnamed", 0)):
        path = state / "monitoring" / f".monitoring.json.{writer}.tmp"
        path.write_text("")
        os.utime(path, (time.time() - age, time.time() - age))
    reap(workspace)
    kept = {".monitoring.json.1-abcdefgh.tmp", ".monitoring.json.unnamed.tmp"}
    assert {path.name for path in (state / "monitoring").iterdir()} == kept
    assert len(list(state.rglob(".*.tmp"))) == 8


def test_what_a_killed_process_was_writing_goes_at_once(workspace: Workspace, state: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom models.files import write_text\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\nwrite_text(Path(sys.argv[1]), 'half')"
    )
    assert subprocess.run([sys.executable, "-c", code, str(state / "feedback.json")], check=False).returncode == -9
    (left,) = state.glob(".feedback.json.*.tmp")
    assert f"{left.name}: half-written; removed" in reap(workspace)
    assert not left.exists()


@pytest.fixture
def child(workspace: Workspace) -> Iterator[subprocess.Popen[bytes]]:
    """A process marked as a dead loop's."""
    dead = {**processes.identity(), "started": 1.0, "workspace": str(workspace.root)}
    made = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, OWNER: json.dumps(dead)}
    )
    while not psutil.Process(made.pid).environ().get(OWNER):
        time.sleep(0.01)
    yield made
    made.kill()
    made.wait()


def test_an_orphan_of_a_dead_loop_is_ended(workspace: Workspace, child: subprocess.Popen[bytes]) -> None:
    assert f"process {child.pid}: its loop is gone; ended" in reap(workspace)
    assert child.wait(10) == -9


def test_a_process_of_a_loop_in_another_container_of_the_hosts_name_is_left_alone(workspace: Workspace) -> None:
    elsewhere = {**processes.identity(), "pids": "deadbeef/pid:[1]", "started": "deadbeef/7"}
    environ = {**os.environ, OWNER: json.dumps({**elsewhere, "workspace": str(workspace.root)})}
    with started([sys.executable, "-c", "print(flush=True); input()"], env=environ, **PIPES) as process:
        process.stdout.readline()
        assert reap(workspace) == []
        assert process.poll() is None


def test_another_workspaces_orphan_is_its_own_business(
    child: subprocess.Popen[bytes], make_elsewhere: Workspace
) -> None:
    reap(make_elsewhere)
    assert child.poll() is None


@pytest.fixture
def make_elsewhere(tmp_path: Path) -> Workspace:
    elsewhere = Workspace(tmp_path / "elsewhere")
    elsewhere.make()
    return elsewhere


def test_a_process_of_a_living_loop_is_left_alone(workspace: Workspace) -> None:
    alive = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, OWNER: json.dumps({**processes.identity(), "workspace": str(workspace.root)})},
    )
    try:
        reap(workspace)
        assert alive.poll() is None
    finally:
        alive.communicate(b"\n")


def test_what_a_killed_writer_left_in_the_cache_goes(workspace: Workspace) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (1, dead.pid):
        (workspace.cache / f".hashes.json.{pid}-abcdefgh.tmp").write_text("")
    assert reap(workspace) == [f".hashes.json.{dead.pid}-abcdefgh.tmp: half-written; removed"]
    assert len(list(workspace.cache.glob(".*.tmp"))) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"study"'])
def test_a_damaged_note_holds_up_nothing(workspace: Workspace, state: Path, content: str) -> None:
    path = state / "work" / "search" / "key" / "study.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]


@pytest.mark.parametrize(
    ("run", "cancelled", "line"),
    [
        ("CANCELLED", ["left"], "tiny-1: its flow run was cancelled; cancelled its training on gpu too"),
        ("SCHEDULED", [], ""),  # another process goes on with it
    ],
)
def test_the_training_of_a_cancelled_run_is_cancelled(
    run: str, cancelled: list[str], line: str, workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answer(api: str, path: str, body: object, method: str = "POST") -> object:
        asked.append(path)
        return {"state_type": run} if path == "flow_runs/r1" else []

    monkeypatch.setattr(flow_runs, "ask", answer)
    monkeypatch.setattr("tasks.operations.reap.is_working", lambda api: True)
    monkeypatch.setenv("PREFECT_API_URL", "http://there/api")
    programs = workspace.root / "bin"
    programs.mkdir()
    for name, says in (("sbatch", ""), ("squeue", ""), ("scancel", "")):
        (programs / name).write_text(f'#!/bin/sh\necho "$@" >> {programs}/{name}.calls\necho {says}\n')
        (programs / name).chmod(0o755)
    (programs / "squeue").write_text('#!/bin/sh\ncase "$*" in *=loopline-????????????-*) echo RUNNING;; esac\n')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (workspace.root / "places.yaml").write_text("gpu: {engine: slurm}\n")
    for name, on in (("left", "gpu"), ("ended", "gpu"), ("local", "here")):
        folder = state / "work" / "train" / name
        folder.mkdir(parents=True)
        (folder / JOB_FILE).write_text(json.dumps({"train": {"on": on}}))
    (state / "work" / "train" / "ended" / RESULT_FILE).write_text("{}")
    save_loop(state, replace(the_loop(state), flow_run="r1"))
    lines = reap(workspace)
    calls = programs / "scancel.calls"
    folders = [state / "work" / "train" / name for name in cancelled]
    expected = [f"--name={name_of(key_of_folder(folder, workspace_id(workspace.state)))}" for folder in folders]
    assert (calls.read_text().split() if calls.exists() else []) == expected
    assert [text for text in lines if "flow run" in text] == [line][: len(cancelled)]
    assert "flow_runs/r1" in asked


def test_a_cancelled_runs_place_that_is_gone_holds_up_nothing(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_runs, "ask", lambda *_: {"state_type": "CANCELLED"} if _[-1] == "GET" else [])
    monkeypatch.setattr("tasks.operations.reap.is_working", lambda api: True)
    monkeypatch.setenv("PREFECT_API_URL", "http://there/api")
    folder = state / "work" / "train" / "left"
    folder.mkdir(parents=True)
    (folder / JOB_FILE).write_text(json.dumps({"train": {"on": "gone"}}))
    save_loop(state, replace(the_loop(state), flow_run="r1"))
    assert any("perhaps not its training: train.on: got 'gone'" in line for line in reap(workspace))
    assert the_loop(state).state == "cancelled"
    assert [(loop.outcome, loop.reason) for loop in read_loops(state)] == [
        ("cancelled", "a person cancelled its run in Prefect")
    ]


def test_a_loop_that_another_machine_has_taken_over_is_left_alone(workspace: Workspace, state: Path) -> None:
    """No process of this machine runs it: only its lease says that it lives."""
    elsewhere = {**processes.identity(), "host": "another", "boot": "another", "pids": "another"}
    lease = {"name": lease_of(state), "holder": elsewhere, "epoch": 1}
    with database.writing(workspace.state) as connection:
        database.upsert(connection, leases, {**lease, "until": database.now(connection) + 60}, key_columns=["name"])
    assert reap(workspace) == []
    assert the_loop(state).state == "running"
    with database.writing(workspace.state) as connection:
        database.upsert(connection, leases, {**lease, "until": database.now(connection) - 1}, key_columns=["name"])
    assert reap(workspace) == ["tiny-1: was killed; marked as killed (`loopline run` continues it)"]


def test_nothing_of_a_project_is_touched_that_another_machine_has_taken_meanwhile(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease was free when this reaper looked: a second reaper, or a loop that goes on there, was first."""
    monkeypatch.setattr("tasks.operations.reap.is_leased", lambda *_: False)
    Outbox(state, "tiny-1").start_run(LOOP_RUN, "tiny-1", {})
    (state / "work").mkdir(exist_ok=True)
    (state / "work" / ".half.tmp").write_text("")
    with database.writing(workspace.state) as connection:
        row = {"name": lease_of(state), "holder": ELSEWHERE, "epoch": 7, "until": database.now(connection) + 60}
        database.upsert(connection, leases, row)
    assert reap(workspace) == []
    assert (state / "work" / ".half.tmp").exists()
    assert (Outbox(state, "tiny-1").open_runs(), the_loop(state).state) == ([LOOP_RUN], "running")


def test_a_reaper_that_lost_the_lease_writes_nothing_and_names_the_holder(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused when it had looked; the loop has gone on elsewhere since."""
    Outbox(state, "tiny-1").start_run(LOOP_RUN, "tiny-1", {})
    went_on = replace(the_loop(state), process=ELSEWHERE)

    def paused(*arguments: Any, **options: Any) -> float:
        with database.writing(workspace.state) as connection:
            database.upsert(connection, leases, {"name": lease_of(state), "holder": ELSEWHERE, "epoch": 7})
        save_loop(state, went_on)
        return conclude_killed(*arguments, **options)

    monkeypatch.setattr("tasks.operations.reap.conclude_killed", paused)
    with pytest.raises(LeaseLostError, match=r"loop:tiny: macbook\.office\.lan, pid \d+ has taken it over"):
        reap(workspace)
    assert the_loop(state) == went_on
    assert (Outbox(state, "tiny-1").open_runs(), read_loops(state)) == ([LOOP_RUN], [])


def test_no_lock_of_a_project_is_held_while_a_tool_is_silent(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect may be silent when it is asked whether a run is cancelled, MLflow when lines are delivered."""
    Outbox(state, "tiny-1").start_run(LOOP_RUN, "tiny-1", {})
    save_loop(state, replace(the_loop(state), flow_run="00000000-0000-0000-0000-000000000001"))
    asked = []

    def silent(*_: object, **__: object) -> bool:
        asked.append(is_held(state / LOOP_LOCK))
        return False

    monkeypatch.setattr("tasks.operations.reap.PrefectServer.api", lambda _: "http://127.0.0.1:1/api")
    monkeypatch.setattr("tasks.operations.reap.is_working", lambda api: True)
    monkeypatch.setattr("tasks.operations.reap.close_task_runs", lambda *_: [])
    monkeypatch.setattr("tasks.operations.reap.ended_with_open_tasks", lambda *_: [])
    monkeypatch.setattr("tasks.operations.reap.is_run_cancelled", silent)
    monkeypatch.setattr("tasks.operations.reap.MlflowExporter.deliver", silent)
    assert "tiny-1: was killed; marked as killed (`loopline run` continues it)" in reap(workspace)
    assert asked == [False, False]


def test_a_silent_prefect_is_asked_once_and_its_runs_wait(
    workspace: Workspace, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question to it would wait for half a minute: for each project, one about its loop and one about its runs."""
    monkeypatch.setattr(prefect_server, "ANSWER_S", 0.2)
    monkeypatch.setattr(events, "TIMEOUT_S", 0.2)
    save_loop(state, replace(the_loop(state), flow_run="r1"))
    with database.writing(workspace.state) as connection:
        connection.execute(runners.insert().values(project="tiny", process=the_loop(state).process, since=1.0))
    with away("healthy") as (address, requests):
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        lines = reap(workspace)
        assert requests == [b"POST /api/flows/filter HTTP/1.1", b"POST /api/events HTTP/1.1"]  # of the loop's end
    assert any("runs of ended processes still wait for Prefect" in line for line in lines)
    assert the_loop(state).state == "killed"
    assert len(dead_runners(state)) == 1
