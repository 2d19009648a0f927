"""What a server answers and what turns out, over HTTP, as watching reads it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from tasks.host.http_guard import SERVE_TOKEN, token_of
from tasks.host.workspace import Workspace
from tasks.state.ingest_segments import move
from tasks.state.predictions import joined, label_store, prediction_log
from tests.conftest import Serve
from tests.serving import crown

EXAMPLES = Path(__file__).parents[2] / "examples"
ROW = {"x": 1.0, "c": "u"}


def test_predictions_and_labels_come_into_the_logs_by_themselves(workspace, serve):
    """In any order, as JSON or CSV, one or many, sent twice; the server's own compactor moves them."""
    crown(workspace, "tiny")
    server = serve("tiny", arguments=("--workers", "2"))
    state = workspace.state / "projects" / "tiny"
    early = server.post("/models/tiny/feedback", {"by": "Ada", "labels": [{"id": "q-0", "label": "no"}]}).ok().json
    assert early == {"accepted": 1, "empty": 0, "model": "tiny"}
    for _ in range(2):  # asked again with the same id, it is the same prediction
        body = {"dataframe_records": [ROW, {"x": None, "c": None, "note": "z"}]}
        assert server.post("/invocations", body, **{"x-request-id": "q"}).ok().json["ids"] == ["q-0", "q-1"]
        sent = server.ask("POST", "/feedback", b"id,y\nq-1,yes\nq-0,\n", {"Content-Type": "text/csv"})
        assert sent.ok().json == {"accepted": 1, "empty": 1, "model": "tiny"}
    made = server.post("/invocations", {"dataframe_records": [ROW]}).ok().json["ids"]
    server.post("/feedback", {"id": made[0], "y": "yes"}).ok()
    server.post("/feedback", [{"id": "q-0", "y": "yes"}]).ok()
    server.wait_until(lambda: label_store(state).cursor() and len(labels(state)) == 3 and rows(state) == 5)
    assert labels(state) == {"q-0": "yes", "q-1": "yes", made[0]: "yes"}
    assert "pyarrow" not in " ".join(mapped(worker.pid) for worker in server.workers())


def test_feedback_that_is_wrong_is_told_and_none_is_taken(workspace, serve):
    crown(workspace, "tiny")
    crown(workspace, "other", task="regression")
    server = serve("tiny", "other")
    wrong: list[tuple[str, Any, int, str]] = [
        ("/feedback", {"id": "a", "label": "yes"}, 404, "several models"),
        ("/models/nobody/feedback", {"id": "a", "label": "yes"}, 404, "no model 'nobody'"),
        ("/models/tiny/feedback", [{"id": "a", "label": "yes"}, {"id": "b", "label": "ye"}], 400, "did you mean 'yes'"),
        ("/models/other/feedback", {"id": "a", "label": "high"}, 400, "expected a number"),
        ("/models/tiny/feedback", b"{", 400, "no JSON"),
        ("/models/tiny/feedback", 7, 400, "expected"),
        ("/models/tiny/feedback", {"labels": 7}, 400, "expected a list"),
        ("/models/tiny/feedback", {"id": "a", "label": "yes", "by": ""}, 400, "by: got '', expected"),
    ]
    for path, body, status, said in wrong:
        reply = server.post(path, body)
        assert (reply.status, said in reply.json["error"]) == (status, True), reply.json
    assert server.get("/models/tiny/feedback").status == 405
    assert not any(Path(workspace.state / "projects").glob("*/serving/labels"))


def test_what_the_spec_says_of_the_log_holds_when_the_server_is_started(workspace, serve, make_project):
    crown(workspace, "tiny")
    make_project("tiny", "serve: {log: {share: 0.5, redact: [c, name]}}\n")
    server = serve("tiny")
    for number in range(40):
        body = {"dataframe_records": [{**ROW, "name": "Ada", "why": number}]}
        server.post("/invocations", body, **{"x-request-id": f"q{number}"}).ok()
    state = workspace.state / "projects" / "tiny"
    move(state)
    assert 5 < rows(state) < 35
    for table in prediction_log(state).scan():
        assert {"input.x", "raw.why"} <= set(table.column_names)
        assert not {"input.c", "raw.name"} & set(table.column_names)


def rows(state: Path) -> int:
    return int(sum(part.rows for part in prediction_log(state).parts()))


def labels(state: Path) -> dict[str, str]:
    found = (row for table in joined(state, labelled=True) for row in table.to_pylist())
    return {row["id"]: row["label"] for row in found}


def mapped(pid: int) -> str:
    """The libraries that a process has loaded."""
    return Path(f"/proc/{pid}/maps").read_text()


def test_the_client_of_the_examples_predicts_and_reports_labels(workspace: Workspace, serve: Serve) -> None:
    crown(workspace, "tiny")
    server = serve("tiny")
    token = token_of(workspace, SERVE_TOKEN)
    client = runpy.run_path(str(EXAMPLES / "client" / "client.py"))["Client"](server.url, token)
    answer = client.predict([{"x": 1, "c": "u"}], ids=["q-1"])
    assert (answer["ids"], answer["version"]) == (["q-1"], "1")
    assert client.label({"q-1": "yes"}) == 1
    script = [sys.executable, str(EXAMPLES / "client" / "client.py"), server.url, '{"x": 1, "c": "u"}']
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert '"label": "yes"' in done.stdout
    done = subprocess.run([*script[:-1], '{"x": "many", "c": "u"}'], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"client.py: {server.url}: refused (400): " in done.stderr
    assert "'many'" in done.stderr
    assert "Traceback" not in done.stderr
