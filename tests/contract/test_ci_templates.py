"""The workflows for a team's pull requests: what the CI systems take, and what their steps do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

CI = Path(__file__).parents[2] / "infra" / "team" / "ci"
GITHUB, GITLAB = ".github/workflows/loop.yml", ".gitlab-ci.yml"
SCHEMAS = {GITHUB: "vendor.github-workflows", GITLAB: "vendor.gitlab-ci"}
# One project is promoted, one is refused by a gate, one fails, and the spec of one is wrong.
PROGRAM = """#!/bin/sh
echo "$*" >> calls.txt
case "$*" in
  "plan wrong") echo "loopline: projects/wrong/project.yaml:3: no" >&2; exit 2;;
  "plan "*) echo "nothing to do";;
  "run good --markdown") echo "## good version 2: promoted";;
  "run kept --markdown") echo "## kept version 3: not promoted"; exit 3;;
  "run token --markdown") echo "## token: ${COMMENT_TOKEN:-none}";;
  *) echo "Error: no such file" >&2; exit 1;;
esac
"""
GOOD, KEPT = "## good version 2: promoted\n", "## kept version 3: not promoted\n"


def script_of(name: str) -> str:
    workflow: dict[str, Any] = YAML(typ="safe").load((CI / name).read_text())
    if name == GITLAB:
        (script,) = workflow["loop"]["script"]
    else:
        (script,) = [step["run"] for step in workflow["jobs"]["loop"]["steps"] if step.get("id") == "run"]
    return str(script)


def verdict_of(folder: Path, name: str = GITHUB) -> Path:
    """Return the file with the verdicts: for GitHub outside the workspace."""
    return folder / ("verdict.md" if name == GITLAB else "temp/verdict.md")


def verdicts(folder: Path, name: str) -> str:
    """Return the verdicts, below the line that names the commit."""
    title, _, text = verdict_of(folder, name).read_text().partition("\n\n")
    assert title.startswith("Loops of")
    return text


def run(script: str, folder: Path, *projects: str, **environment: str) -> subprocess.CompletedProcess[str]:
    programs = folder / "bin"
    for path in (
        programs,
        folder / "ci",
        verdict_of(folder).parent,
        *(folder / "projects" / name for name in projects),
    ):
        path.mkdir(parents=True, exist_ok=True)
    for project in projects:
        (folder / "projects" / project / "project.yaml").touch()
    shutil.copy(CI / "ci" / "loops.sh", folder / "ci")
    (programs / "loopline").write_text(PROGRAM)
    (programs / "loopline").chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
             "RUNNER_TEMP": str(verdict_of(folder).parent), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_workflow_is_what_its_system_takes(name: str, tmp_path: Path) -> None:
    checker = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", SCHEMAS[name]]
    done = subprocess.run([*checker, CI / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        (CI / name).read_text().replace("artifacts:\n", "artefacts: 3\n  artifacts:\n").replace("runs-on", "run-on")
    )
    assert subprocess.run([*checker, wrong], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_that_is_not_promoted_is_a_verdict_and_an_error_is_a_failure(name: str, tmp_path: Path) -> None:
    done = run(script_of(name), tmp_path, "good", "kept")
    assert done.returncode == 0, done.stderr
    assert verdicts(tmp_path, name) == f"{GOOD}\n{KEPT}"
    assert run(script_of(name), tmp_path, "bad").returncode == 1
    assert verdicts(tmp_path, name) == f"## bad: no verdict (exit code 1): see the job's log\n\n{GOOD}\n{KEPT}"


def test_no_loop_begins_if_a_spec_is_wrong(tmp_path: Path) -> None:
    done = run(script_of(GITHUB), tmp_path, "good", "wrong")
    assert done.returncode == 2
    assert verdicts(tmp_path, GITHUB) == "## wrong: refused\n\nloopline: projects/wrong/project.yaml:3: no\n"
    assert (tmp_path / "calls.txt").read_text().splitlines() == ["plan good", "plan wrong"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_branch_cannot_write_or_redirect_the_verdict(name: str, tmp_path: Path) -> None:
    """A committed verdict would be commented as the loop's, and a link would show what it points to."""
    (tmp_path / "secret").write_text("token\n")
    (tmp_path / "verdict.md").symlink_to(tmp_path / "secret")
    assert run(script_of(name), tmp_path, "kept").returncode == 0
    assert verdicts(tmp_path, name) == KEPT
    assert (tmp_path / "secret").read_text() == "token\n"


def test_gitlabs_loop_sees_no_token(tmp_path: Path) -> None:
    assert run(script_of(GITLAB), tmp_path, "token", COMMENT_TOKEN="secret").returncode == 0
    assert verdicts(tmp_path, GITLAB) == "## token: none\n"


def test_a_repository_without_projects_passes(tmp_path: Path) -> None:
    assert run(script_of(GITHUB), tmp_path).returncode == 0
    assert verdicts(tmp_path, GITHUB) == ""


def test_githubs_token_may_write_where_no_code_of_the_branch_runs() -> None:
    workflow = YAML(typ="safe").load((CI / GITHUB).read_text())
    (checkout,) = [step for step in workflow["jobs"]["loop"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["persist-credentials"] is False
    assert (workflow["permissions"], "permissions" in workflow["jobs"]["loop"]) == ({"contents": "read"}, False)
    steps = workflow["jobs"]["comment"]["steps"]
    assert [step for step in steps if "checkout" in step.get("uses", "") or "loops.sh" in step.get("run", "")] == []


def test_gitlabs_comment_is_the_verdict(tmp_path: Path) -> None:
    notes: list[tuple[str, str | None, Any]] = []

    class Notes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            notes.append((self.path, self.headers["PRIVATE-TOKEN"], json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    workflow = YAML(typ="safe").load((CI / GITLAB).read_text())
    (script,) = workflow["loop"]["after_script"]
    (tmp_path / "verdict.md").write_text("## good: promoted\n")
    with HTTPServer(("127.0.0.1", 0), Notes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/api/v4"
        merge = {"CI_API_V4_URL": address, "CI_PROJECT_ID": "7", "CI_MERGE_REQUEST_IID": "4"}
        assert run(script, tmp_path, **merge).returncode == 0
        assert not notes, "nobody may comment without a token"
        done = run(script, tmp_path, **merge, COMMENT_TOKEN="secret")
        server.shutdown()
    assert done.returncode == 0, done.stderr
    assert notes == [("/api/v4/projects/7/merge_requests/4/notes", "secret", {"body": "## good: promoted\n"})]
