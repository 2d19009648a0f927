"""The compactor works through every project, and one log in trouble does not keep it from the others."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from models.files import write_json, write_text
from models.project_spec.reader import read_spec
from models.serving.records import label_record
from tasks.operations import compact
from tasks.operations.compact import Compactor, run, specs
from tasks.prefect import events
from tasks.state.delta.delta_log import FEWEST_PARTS
from tasks.state.ingest_segments import moving
from tasks.state.predictions import joined, label_store, prediction_log
from tasks.state.segments import SegmentWriter, segments_folder
from tests.children import started
from tests.wide import wide


def fill(state: Path, parts: int = FEWEST_PARTS) -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    for number in range(parts):
        prediction_log(state).append(pa.table({"id": [str(number)], "at": at}))
        label_store(state).append(pa.table({"id": [str(number)], "at": at, "label": ["x"]}))


def serve(state: Path, *ids: str, label: str = "yes") -> None:
    """What a server wrote that has ended."""
    record = {"ids": ids, "at": time.time_ns() // 1000, "version": "1", "score": [0.5] * len(ids)}
    written = SegmentWriter(segments_folder(state))
    written.write(orjson.dumps({**record, "names": [], "numbers": [], "texts": {}, "raw": {}}))
    written.close()
    told = SegmentWriter(segments_folder(state, "labels"))
    told.write(label_record([(one, label) for one in ids], time.time_ns() // 1000, "Ada"))
    told.close()


def test_the_logs_of_every_project_are_compacted(workspace):
    states = [workspace.state / "projects" / name for name in ("a", "b", "c")]
    for state in states:
        fill(state)
    log = prediction_log(states[1])
    (log.folder / log.parts(2)[0].name).write_bytes(b"damaged")
    done = Compactor(workspace).once()
    assert (done.moved, done.merged, str(done)) == (0, 6 * FEWEST_PARTS, f"{6 * FEWEST_PARTS} parts merged")
    assert [len(prediction_log(state).parts()) for state in states] == [1, 1, 1]
    assert [path.read_bytes() for path in (states[1] / "predictions" / "_damaged").iterdir()] == [b"damaged"]
    assert len(label_store(states[1]).parts()) == 1
    assert Compactor(workspace).once().merged == 0


def test_what_servers_wrote_is_moved_project_by_project(workspace):
    states = [workspace.state / "projects" / name for name in ("a", "b", "c")]
    for state in states:
        serve(state, "one", "two")
    write_text(states[1] / "predictions", "a file where a folder should be")
    with moving(states[2]):
        assert Compactor(workspace).once().moved == 4, "another process is at the third, the second is in trouble"
    assert Compactor(workspace).once().moved == 4
    assert [table.column("label").to_pylist() for table in joined(states[0])] == [["yes", "yes"]]


def test_an_idle_one_imports_no_arrow(workspace):
    (workspace.state / "projects" / "a").mkdir(parents=True)
    program = (
        "import sys; from pathlib import Path; from tasks.operations.compact import Compactor; "
        "from tasks.host.workspace import Workspace; Compactor(Workspace(Path(sys.argv[1]))).once(); "
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(workspace.root)], check=False).returncode == 0


def test_what_is_old_goes_as_the_spec_says(workspace, make_project, monkeypatch):
    project = make_project("kept", "monitor: {keep_days: 30}\n")
    make_project("broken", "monitor: {keep_days: never}\n")
    fill(project.state("kept"), 1)
    fill(project.state("other"), 1)
    long_ago, now = datetime(2026, 1, 20, tzinfo=UTC).timestamp(), datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    compactor = Compactor(workspace)
    assert compactor.once(long_ago).forgotten == 0
    assert compactor.once(long_ago).forgotten == 0
    assert sum(part.rows for part in prediction_log(project.state("kept")).parts()) == 1
    spared = compactor.once(now)
    assert (spared.forgotten, sum(part.rows for part in prediction_log(project.state("kept")).parts())) == (0, 1), (
        "it has a label"
    )
    prediction_log(project.state("kept")).append(
        pa.table({"id": ["z"], "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))})
    )
    assert Compactor(workspace).once(now).forgotten == 1
    assert sum(part.rows for part in prediction_log(project.state("other")).parts()) == 1


def test_a_project_that_lies_elsewhere_has_the_spec_of_its_newest_version(workspace, make_project, tmp_path):
    project = make_project("far", "monitor: {keep_days: 7}\n", folder=tmp_path / "far")
    (workspace.state / "projects" / "far").mkdir(parents=True)
    assert specs(workspace) == []
    own = read_spec(project.spec_path)
    for number, age in (("1", 100), ("2", 0)):
        folder = workspace.cache / "models" / "far" / number
        monitor = own.monitor.model_copy(update={"keep_days": int(number)})
        document = own.model_copy(update={"monitor": monitor}).model_dump(mode="json")
        document["serve"]["variants"] = ["int8_static", "pruned"]  # of an earlier release
        write_json(folder / "spec.json", document)
        os.utime(folder / "spec.json", (time.time() - age,) * 2)
    assert [spec.monitor.keep_days for spec in specs(workspace)] == [2]


def test_events_that_wait_are_delivered_and_trouble_does_not_end_it(workspace, monkeypatch):
    calls = []

    def deliver(where):
        calls.append(where)
        raise OSError("the disk is gone") if len(calls) == 1 else SystemExit

    monkeypatch.setattr(events, "deliver", deliver)
    with pytest.raises(SystemExit):
        run(workspace, pause_s=0.0)
    assert calls == [workspace, workspace]


@pytest.mark.parametrize("platform", [None, {"pid": 1}])
def test_beside_a_server_it_leaves_all_to_a_platform_and_events_always(workspace, monkeypatch, platform):
    asked = []
    serve(workspace.state / "projects" / "a", "one")

    def supervisor(_):
        asked.append(platform)
        if len(asked) == 2:
            raise SystemExit
        return platform

    monkeypatch.setattr(compact, "supervisor", supervisor)
    monkeypatch.setattr(events, "deliver", lambda _: pytest.fail("events are the platform's"))
    with pytest.raises(SystemExit):
        run(workspace, pause_s=0.0, as_sidecar=True)
    assert prediction_log(workspace.state / "projects" / "a").cursor() == (0 if platform else 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, wide(signal.SIGINT)])
def test_it_is_a_program_that_ends_at_once_and_silently(workspace, number):
    state = workspace.state / "projects" / "a"
    fill(state)
    serve(state, "one")
    command = [sys.executable, "-m", "tasks.operations.compact", str(workspace.root)]
    with started(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "2 rows moved, " in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(30) == -number
        assert "Traceback" not in process.stderr.read()
    assert sum(part.rows for part in prediction_log(state).parts()) == FEWEST_PARTS + 1


def test_the_same_trouble_is_said_once_in_a_while(workspace, caplog):
    state = workspace.state / "projects" / "a"
    serve(state, "one")
    write_text(state / "predictions", "a file where a folder should be")
    compactor = Compactor(workspace)
    for _ in range(3):
        compactor.once()
    assert len(caplog.records) == 1
