"""What stands for Python's program where the product starts a process by `python -m MODULE`, in all but cold starts.

The warm parent writes it as a script and has the product use it (`stand_in`): MODULES, such as Prefect's engine and the
workspace's Prefect server, are then forked from the parent, as are the services of the platform, which SERVICE becomes.
All other programs are Python's own.
The script's process has the environment of the program that it stands for, hands signals on, and ends as that ends; if
it is killed, so is the program.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tests.warm_call import begin, exit_code_of

MODULES = (
    "flows.cli",
    "mlflow",
    "prefect",
    "prefect.engine",
    "tasks.dashboard",
    "tasks.dashboard.acting",
    "tasks.loop.carry_moves",
    "tasks.loop.carry_runs",
    "tasks.mlflow.mlflow_server",
    "tasks.operations.collect_garbage",
    "tasks.operations.compact",
    "tasks.prefect.prefect_server",
    "tasks.prefect.worker",
    "tasks.release.registry_jobs",
    "tasks.release.shadow",
    "tasks.release.smoke_test",
    "tasks.serve",
    "tasks.tools.dvc_remote",
    "tasks.tools.optuna_page",
)
"""The modules that are forked: their imports take one to five seconds."""
STARTERS = (
    "flows.prefect.work_pool",
    "models.parent_death",
    "tasks.dashboard.acting",
    "tasks.mlflow.garbage",
    "tasks.operations.migrate",
    "tasks.platform.supervision",
    "tasks.prefect.prefect_server",
    "tasks.release.fetch_and_verify",
    "tasks.tools.dvc_remote",
)
"""The modules of the product that start a Python."""
SERVICE = "tasks.platform.service_main"
"""The module that replaces its own process by a service: it has the script for its Python."""
BARE = "-IS"
"""What Python gets where a service waits for its first connection."""
LAUNCH = str(Path(__file__).parents[1] / "models" / "launch.py")
"""What runs a module of ours, in place of `-m`."""
HANDED_ON = (signal.SIGTERM, signal.SIGINT)
_SCRIPT = """\
#!{python} -S
import sys

sys.path.insert(0, {root!r})
from tests.warm_python import become

become({address!r}, {python!r}, {machine!r})
"""


class _Sys:
    """The module `sys`, but for the program of Python."""

    def __init__(self, executable: str) -> None:
        self.executable = executable

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def script_of(address: str) -> Path:
    """Where the script of the parent at this address is."""
    return Path(f"{address}-python")


def stand_in(address: str, *users: Any) -> None:
    """Write the script of the parent at this address, and have these modules take it for `sys.executable`."""
    script = script_of(address)
    root = str(Path(__file__).parents[1])
    script.write_text(_SCRIPT.format(python=sys.executable, root=root, address=address, machine=_machine()))
    script.chmod(0o755)
    for user in users:
        assert user.sys.executable == sys.executable, f"{user} starts no Python: another module does"
        user.sys = _Sys(str(script))


def _machine() -> str:
    """What a test that plays several machines gives each of its own: the namespace of processes."""
    return str(Path("/proc/self/ns/pid").readlink())


def become(address: str, python: str, machine: str) -> None:
    """Have the parent run what our arguments say, or be Python: so on another machine."""
    arguments = sys.argv[1:]
    module = arguments[1:] if arguments[0] == "-P" else arguments
    if module[:2] == [LAUNCH, SERVICE]:
        begin_service = f"import sys; sys.executable = {sys.argv[0]!r}; from {SERVICE} import main; main()"
        os.execv(python, [python, "-P", "-c", begin_service, *module[2:]])
    if arguments[:2] == [BARE, "-c"]:  # it waits for a connection, and becomes a service that is forked
        os.execv(
            python,
            [python, BARE, "-c", f"import sys; sys.executable = {sys.argv[0]!r}; {arguments[2]}", *arguments[3:]],
        )
    if module[0] not in ("-m", LAUNCH) or module[1] not in MODULES or _machine() != machine:
        os.execv(python, [python, *arguments])
    parent = socket.socket(socket.AF_UNIX)
    parent.connect(address)
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    pid, descriptor = begin(parent, "-m", tuple(module[1:]), dict(os.environ), str(Path.cwd()), (0, 1, 2))
    for number in HANDED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    code = exit_code_of(descriptor)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
