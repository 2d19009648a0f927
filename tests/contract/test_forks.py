"""No process with threads is forked: its child hangs at a lock that another thread held."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORKS = re.compile(
    r"""os\.fork\(|os\.forkpty\(|preexec_fn=|start_method="fork"|get_context\((["']fork["'])?\)"""
    r"""|multiprocessing\.(Process|Pool|Queue|Manager)\(|ProcessPoolExecutor\(\w*\)"""
)
FROM_CLEAN_PROCESSES = {
    "tests/contract/test_forks.py": "this table",
    "models/distributed/forkserver.py": "the fork server: it starts no thread",
    "models/training/agent.py": "the agent, itself a fork of the fork server, before it trains",
    "tests/integration/test_planner.py": "a process of its own that only imports",
    "tests/rewritten.py": "pytest's first process as it begins, before the warm parent",
    "tests/time/machines.py": "a fork of the warm parent, as it begins",
    "tests/unit/infra/client/loopline/test_session.py": "a process of its own that only imports",
    "tests/unit/models/project_spec/test_references.py": "a process of its own that only imports",
    "tests/unit/tasks/host/test_database.py": "a clean process",
    "tests/warm.py": "the warm parent: no thread of it computes",
}
"""Files that fork, and why the process that they fork is clean."""


def test_only_clean_processes_are_forked() -> None:
    paths = [path for folder in ("models", "tasks", "flows", "tests") for path in (ROOT / folder).rglob("*.py")]
    forking = {str(path.relative_to(ROOT)) for path in paths if FORKS.search(path.read_text())}
    assert forking == FROM_CLEAN_PROCESSES.keys(), "use tests/clean_process.py, or multiprocessing's forkserver"
