"""The doctor finds what would fail, names the cure and changes nothing."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import namedtuple
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from models.pipeline.records import StepRecord
from models.report.facts import WHAT_TO_DO
from models.serving.registry_comparison import Projection
from tasks.host import database
from tasks.host.processes import SERVICE
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.loop.step_cache import StepCache
from tasks.operations import doctor
from tasks.operations.doctor import Finding, examine
from tasks.prefect.events import Event, store
from tasks.state import registered_models
from tasks.state.predictions import label_store
from tests.conftest import MakeProject


def findings(workspace: Workspace) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(workspace)}


def test_a_healthy_workspace(workspace: Workspace, make_project: MakeProject) -> None:
    make_project()
    found = findings(workspace)
    assert "moves" not in found
    assert {name for name, finding in found.items() if finding.state == "wrong"} == set()
    assert "1 projects" in found["specs"].detail
    assert "embedded" in found["tracking"].detail
    assert found["prefect"].detail == "starts with the next loop"
    assert found["state"].detail.endswith("state.db, made by the first loop")


def test_every_trouble_names_a_cure(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project().spec_path.write_text("data: {}\n")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000))
    found = findings(workspace)
    states = {name: found[name].state for name in ("specs", "programs", "tracking", "prefect", "disk")}
    assert states == {"specs": "wrong", "programs": "warn", "tracking": "warn", "prefect": "warn", "disk": "warn"}
    assert all(finding.cure for finding in found.values() if finding.state != "ok")
    assert "project.yaml:1: data.source: missing" in found["specs"].detail


def test_moves_that_mlflow_does_not_follow_are_named_with_their_cure(workspace: Workspace) -> None:
    why = "tiny: MLflow holds another move 3 of this workspace: a copy of the workspace runs: end the copy"
    with database.writing(workspace.state) as connection:
        registered_models.save(connection, "tiny", Projection("home", looked=1.0, trouble=why))
        registered_models.save(connection, "flights", Projection("home", looked=1.0))
    assert doctor._moves(workspace) == [Finding("moves", "warn", "MLflow does not follow tiny", why)]
    assert findings(workspace)["moves"].cure == why


def test_a_tool_that_lacks_rows_for_minutes_is_named_with_the_page_of_what_to_do(workspace: Workspace) -> None:
    ages_s = {"tiny": 600, "new": 1}  # a carrier takes a moment
    with database.writing(workspace.state) as connection:
        for project, age_s in ages_s.items():
            store(connection, Event(name="loopline.loop.ended", project=project, text="", at=time.time() - age_s))
    (finding,) = [finding for finding in examine(workspace) if "Prefect lacks" in finding.detail]
    assert (finding.what, finding.state) == ("prefect", "warn")
    assert finding.detail == "Prefect lacks 1 events of tiny, for 10 min at most"
    assert WHAT_TO_DO in finding.cure


def test_a_copy_with_the_name_of_another_project_is_wrong(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    save_loop(project.state("tiny"), LoopRecord("tiny-1", "finished", folder=str(project.folder)))
    make_project("tiny", folder=workspace.root / "projects" / "copy")
    specs = findings(workspace)["specs"]
    assert specs.state == "wrong"
    assert f"the name 'tiny' is taken by {project.folder}" in specs.detail


def test_a_root_that_cannot_be_used_is_wrong(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(workspace)["root"] == Finding("root", "ok", "this disk (LOOPLINE_ROOT is not set)")
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{workspace.root}/store")
    assert findings(workspace)["root"].state == "ok"
    (workspace.root / "store" / "layout").write_text("99")
    found = findings(workspace)["root"]
    assert (found.state, "another version of Loopline made it" in found.detail) == ("wrong", True)


def test_a_state_database_that_cannot_be_used_is_wrong(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.state / database.FILE).write_bytes(b"no database at all" * 500)
    found = findings(workspace)["state"]
    assert (found.state, "it is damaged" in found.detail) == ("wrong", True)
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://ada:secret@127.0.0.1:1/x")
    found = findings(workspace)["state"]
    assert found.state == "wrong"
    assert "127.0.0.1:1/x: cannot be used (" in found.detail
    assert "secret" not in found.detail


def test_damaged_files_that_were_set_aside_are_told(workspace: Workspace) -> None:
    assert findings(workspace)["logs"].state == "ok"
    log = label_store(workspace.state / "projects" / "tiny")
    log.append(pa.table({"at": [datetime.now(UTC)], "label": ["yes"]}))
    (part,) = log.folder.glob("*.parquet")
    part.write_bytes(part.read_bytes()[:20])
    list(label_store(workspace.state / "projects" / "tiny").scan())
    found = findings(workspace)["logs"]
    assert found.state == "warn"
    assert f"1 damaged files were set aside: {log.folder}/_damaged/000000000001-000000000001.parquet" in found.detail


def test_packages_named_like_ours_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    assert doctor._imports().state == "ok"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(doctor.CLONE), str(tmp_path)])
    found = doctor._imports()
    assert (found.state, str(tmp_path / "models") in found.detail) == ("warn", True)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(doctor.CLONE)])
    found = doctor._imports()
    assert (found.state, "make setup" in found.cure) == ("wrong", True)


def test_a_package_of_the_wrong_version_is_wrong(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor.metadata, "requires", lambda _: ["numpy<1", "no-such-package-anywhere", "pytest; extra == 'dev'"]
    )
    found = findings(workspace)["packages"]
    assert found.state == "wrong"
    assert "numpy" in found.detail
    assert "no-such-package-anywhere is missing" in found.detail
    assert "make setup" in found.cure


def test_a_workspace_that_cannot_be_written(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Workspace) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Workspace, "make", refuse)
    found = findings(workspace)["workspace"]
    assert (found.state, "LOOPLINE_HOME" in found.cure) == ("wrong", True)


def test_a_port_of_the_platform_that_is_taken_meanwhile(workspace: Workspace) -> None:
    assert findings(workspace)["platform"].state == "ok"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        (workspace.state / "platform").mkdir()
        (workspace.state / "platform" / "ports.json").write_text(json.dumps({"ports": {"mlflow": port}}))
        found = findings(workspace)["platform"]
    assert found.state == "warn"
    assert f"port {port} of mlflow" in found.detail
    assert f"pid {os.getpid()}" in found.detail


def test_what_a_killed_supervisord_left(workspace: Workspace) -> None:
    mark = json.dumps({"workspace": str(workspace.root), "service": "mlflow"})
    code = "import time; print(flush=True); time.sleep(60)"
    left = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, SERVICE: mark}, stdout=subprocess.PIPE)
    try:
        assert left.stdout is not None
        left.stdout.readline()
        found = findings(workspace)["platform"]
    finally:
        left.kill()
        left.communicate()
    assert (found.state, "loopline down" in found.cure) == ("warn", True)


def test_ranks_that_cross_a_slow_link_are_a_warning(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Four GPUs on two sides, as `nvidia-smi topo -m` would print them."""
    sides = [["GPU0", " X ", "PIX", "SYS"], ["GPU1", "PIX", " X ", "SYS"], ["GPU2", "SYS", "SYS", " X "]]
    matrix = "\n".join("\t".join(row) for row in [["", "GPU0", "GPU1", "GPU2"], *sides])
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'topo -m' ] && cat <<'END'\n{matrix}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    make_project("two")
    assert doctor._gpus(workspace) == Finding("gpus", "ok", "linked fast: 0,1 | 2")
    make_project("three", "train:\n  ranks: 3\n")
    found = doctor._gpus(workspace)
    assert found.state == "warn"
    assert found.detail == "three: train.ranks 3 cross SYS of GPUs 0 and 2"
    assert "set train.ranks to at most 2, and CUDA_VISIBLE_DEVICES to one of 0,1 | 2" in found.cure
    for failing in ("exit 9", "printf 'caf\\351'"):
        program.write_text(f"#!/bin/sh\n{failing}\n")
        assert doctor._gpus(workspace) == Finding("gpus", "ok", "no two GPUs to link")


def test_a_version_whose_data_is_lost_is_named_with_its_loop(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    assert findings(workspace)["data"].detail == "no version yet"
    result = {"raw": "11.dir", "prepared": "22.dir", "remote": "", "is_cached": True}
    StepCache(project, project.spec()).records.save(
        StepRecord(step="version", key="k", parts={}, digest="d", result=result, loop_id="tiny-1", finished=1.0)
    )
    found = findings(workspace)["data"]
    assert (found.state, found.detail) == ("warn", "DVC's cache has lost the data of tiny-1")
    assert "`loopline run PROJECT` stores the data" in found.cure
