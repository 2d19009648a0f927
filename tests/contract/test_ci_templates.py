"""The workflows for a team's pull requests: what the CI systems take, and what their steps do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

CI = Path(__file__).parents[2] / "infra" / "ci"
SCHEMAS = {"github.yml": "vendor.github-workflows", "gitlab.yml": "vendor.gitlab-ci"}
# One project is promoted, one is refused by a gate, one fails.
PROGRAM = """#!/bin/sh
case "$*" in
  *"run projects/good --markdown"*) echo "## good version 2: promoted";;
  *"run projects/kept --markdown"*) echo "## kept version 3: not promoted"; exit 3;;
  *"run projects/token --markdown"*) echo "## token: ${COMMENT_TOKEN:-none}";;
  *) echo "Error: no such file" >&2; exit 2;;
esac
"""


def script_of(name: str) -> str:
    workflow: dict[str, Any] = YAML(typ="safe").load((CI / name).read_text())
    if name == "gitlab.yml":
        (script,) = workflow["loop"]["script"]
    else:
        (script,) = [step["run"] for step in workflow["jobs"]["loop"]["steps"] if step.get("id") == "run"]
    return str(script)


def verdict_of(folder: Path, name: str = "github.yml") -> Path:
    """Return the file with the verdict: for GitHub outside the workspace."""
    return folder / ("verdict.md" if name == "gitlab.yml" else "temp/verdict.md")


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    programs = folder / "bin"
    for path in (programs, verdict_of(folder).parent):
        path.mkdir(exist_ok=True)
    for name in ("docker", "loopline"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
        env={"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}", "IMAGE": "loopline",
             "GITHUB_STEP_SUMMARY": str(folder / "page.md"), "GITHUB_WORKSPACE": str(folder),
             "RUNNER_TEMP": str(verdict_of(folder).parent), **environment},
    )  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_workflow_is_what_its_system_takes(name: str, tmp_path: Path) -> None:
    checker = [str(Path(sys.executable).with_name("check-jsonschema")), "--builtin-schema", SCHEMAS[name]]
    done = subprocess.run([*checker, CI / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / name
    wrong.write_text(
        (CI / name).read_text().replace("artifacts:\n", "artefacts: 3\n  artifacts:\n").replace("runs-on", "run-on")
    )
    assert subprocess.run([*checker, wrong], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_that_is_not_promoted_is_a_verdict_and_an_error_is_a_failure(name: str, tmp_path: Path) -> None:
    done = run(script_of(name), tmp_path, PROJECTS="good kept")
    assert done.returncode == 0, done.stderr
    verdict = verdict_of(tmp_path, name).read_text()
    assert verdict == "## good version 2: promoted\n\n## kept version 3: not promoted\n\n"
    verdict_of(tmp_path, name).unlink()
    assert run(script_of(name), tmp_path, PROJECTS="bad good").returncode == 2
    verdict = verdict_of(tmp_path, name).read_text()
    assert verdict.startswith("## bad: no verdict (exit code 2): see the job's log\n")
    assert "## good version 2: promoted" in verdict


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_branch_cannot_write_or_redirect_the_verdict(name: str, tmp_path: Path) -> None:
    """A committed verdict would be commented as the loop's, and a link would show what it points to."""
    (tmp_path / "secret").write_text("token\n")
    for committed in ("verdict.md", "one.md"):
        (tmp_path / committed).symlink_to(tmp_path / "secret")
    assert run(script_of(name), tmp_path, PROJECTS="kept").returncode == 0
    assert verdict_of(tmp_path, name).read_text() == "## kept version 3: not promoted\n\n"
    assert (tmp_path / "secret").read_text() == "token\n"


def test_gitlabs_loop_sees_no_token(tmp_path: Path) -> None:
    assert run(script_of("gitlab.yml"), tmp_path, PROJECTS="token", COMMENT_TOKEN="secret").returncode == 0
    assert verdict_of(tmp_path, "gitlab.yml").read_text() == "## token: none\n\n"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_workflow_without_projects_fails(name: str, tmp_path: Path) -> None:
    done = run(script_of(name), tmp_path, PROJECTS="")
    assert done.returncode
    assert "PROJECTS: names no project" in done.stderr


def test_githubs_checkout_leaves_no_token_to_the_branchs_code() -> None:
    workflow = YAML(typ="safe").load((CI / "github.yml").read_text())
    (checkout,) = [step for step in workflow["jobs"]["loop"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["persist-credentials"] is False


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

    workflow = YAML(typ="safe").load((CI / "gitlab.yml").read_text())
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
