"""`loopline env`: prints the environment with which the tools' own command lines use this workspace."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from tasks.host import stores
from tasks.host.server_access import credentials
from tasks.host.workspace import HOME, Workspace
from tasks.prefect.prefect_server import PrefectServer


@click.command()
def command() -> None:
    """Print `export` lines by which mlflow, prefect, dvc, and loopline in any folder, use this workspace.

    Example: eval "$(loopline env)" && mlflow experiments search

    Example: eval "$(loopline env)" && dvc status
    """
    workspace = Workspace.find()
    # Without LOOPLINE_HOME, a loop of another workspace would register its versions in this workspace's stores.
    variables = {**stores.environment(workspace), HOME: str(workspace.root)}
    url = PrefectServer(workspace).url()
    if url:
        variables["PREFECT_API_URL"] = url
        variables |= credentials(workspace, {**os.environ, **variables})
    programs = str(Path(sys.executable).parent)
    if (before := os.environ.get("PATH", "")).split(os.pathsep)[0] != programs:
        variables["PATH"] = os.pathsep.join(filter(None, [programs, before]))  # `dvc repro` calls loopline
    for key, value in sorted(variables.items()):
        click.echo(f"export {key}={shlex.quote(value)}")
