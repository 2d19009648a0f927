"""Arguments and options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from models.errors import LooplineError

Function = TypeVar("Function", bound=Callable[..., Any])


def project(function: Function) -> Function:
    """Add the argument PROJECT: a name under projects/ or a path."""
    return click.argument("project", shell_complete=complete_project)(function)


def complete_project(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the projects of the workspace whose names begin so; a path is completed by the shell."""
    from tasks.host.workspace import Workspace

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="dir")]
    try:
        names = [project.folder.name for project in Workspace.find().projects()]
    except (LooplineError, OSError):
        return []  # a message would stand amid the line that is typed
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def overrides(function: Function) -> Function:
    """Add the option `-s block.key=value`, which may be repeated."""
    return click.option(
        "-s",
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key of the spec: -s train.epochs=3.",
    )(function)


def as_json(function: Function) -> Function:
    """Add the option `--json`, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")(function)


def say_late(trouble: str) -> None:
    """Say on stderr why MLflow does not follow a decided move yet; nothing where it follows."""
    if trouble:
        click.echo(f"decided; MLflow does not follow yet: {trouble}", err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, default=str))
