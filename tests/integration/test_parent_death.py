"""kill -9 of a program leaves none of its children, also of those that had just begun.

What the ranks of a training do is in `test_rank_pool.py`.
"""

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from tests.children import started

PARENTS = {
    "a server and its compactor": "from tasks.serve.compactor import _started; block = _started(str(root))",
    "a server and its shadow": """
from tasks.release.controller import Background
block = contextlib.nullcontext(Background(workspace, "tiny")._start("tasks.release.shadow", "1"))
""",
    "supervisord and a service": """
import os, subprocess
from models.files import write_text
workspace.platform.mkdir(parents=True)
write_text(workspace.platform / "supervisord.pid", f"{os.getpid()}\\n")
command = [sys.executable, "-m", "tasks.platform.service_main", str(root), "compactor"]
block = contextlib.nullcontext(subprocess.Popen(command))
""",
}
PARENT = """
import contextlib, signal, sys
from pathlib import Path
from tasks.host.workspace import Workspace
root = Path(sys.argv[1])
workspace = Workspace(root)
{begin}
with block as child:
    print(child.pid, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("name", PARENTS)
def test_the_child_ends_with_its_killed_parent(name, workspace):
    command = [sys.executable, "-c", PARENT.format(begin=PARENTS[name]), str(workspace.root)]
    with started(command, stdout=subprocess.PIPE, env={**os.environ, "LOOPLINE_HOME": str(workspace.root)}) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        try:
            _, alive = psutil.wait_procs([child], timeout=30)
            assert alive == []
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
