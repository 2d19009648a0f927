"""A team's own packages `models`, `tasks` and `flows` beside the installed program are no trouble."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from models.project_spec.references import OWN_PACKAGES

pytestmark = [pytest.mark.integration, pytest.mark.wide]
"""With every change an installed wheel does so: `tests/e2e/test_installed.py`."""

METRIC = """\
def error(target, prediction):
    return float(abs(target - prediction).mean())


METRIC = {"value": error, "direction": "minimize", "tasks": ["regression"]}
"""


def test_commands_find_our_packages_beside_a_teams(tmp_path: Path) -> None:
    project = tmp_path / "projects" / "trips"
    for folder in (tmp_path, project):
        for name in OWN_PACKAGES:
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text("raise RuntimeError('the package of the team')\n")
    rows = "".join(f"{number},{number % 7}\n" for number in range(300))
    (project / "trips.csv").write_text(f"km,minutes\n{rows}")
    (project / "costs.py").write_text(METRIC)
    (project / "project.yaml").write_text(
        "name: trips\ndata: {source: trips.csv, target: minutes}\ngoal: {metric: './costs.py:METRIC'}\n"
    )
    environment = {**os.environ, "LOOPLINE_HOME": str(tmp_path)}
    program = Path(sys.executable).with_name("loopline")
    for folder, words in ((tmp_path, ["plan", "trips"]), (project, ["check-row", "./costs.py:METRIC"])):
        done = subprocess.run(
            [program, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
