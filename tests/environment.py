"""The environment of all tests: nothing of the user's shell that a tool of ours would read."""

from __future__ import annotations

import os
import signal
import sys

from tasks.host import stores

OURS = ("PREFECT_", "MLFLOW_", "LOOPLINE_", "DVC_", "AWS_", "GIT_", "OPTUNA_")
"""How the variables of the tools begin."""
QUIET = {
    **{key: value for key, value in stores.QUIET.items() if value},
    stores.POLL: "0.5",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
}
"""Variables that every test has."""


def forget_the_user() -> None:
    """Take the tools' variables out of this process's environment and put ours in, before a tool is imported."""
    for key in [key for key in os.environ if key.startswith(OURS)]:
        del os.environ[key]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of hundreds of processes would compile our code again
    sys.dont_write_bytecode = False
    os.environ.update(QUIET)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores Ctrl-C for what runs in its background
