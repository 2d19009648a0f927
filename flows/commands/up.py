"""`loopline up`: the platform, from then on the loops run without anybody."""

from __future__ import annotations

import click

from flows.commands import options
from models.errors import UsageError
from tasks.runtime import stores
from tasks.runtime.services import ServiceState, services_of
from tasks.runtime.workspace import Workspace


@click.command()
@click.option(
    "--port",
    "wishes",
    multiple=True,
    metavar="SERVICE=NUMBER",
    help="Port of prefect, mlflow, overview, optuna or serve, kept from then on; 0: any free one.",
)
@click.option("--foreground", is_flag=True, help="Stay, and end the platform at Ctrl-C.")
@options.as_json
def command(wishes: tuple[str, ...], foreground: bool, as_json: bool) -> None:
    """Start the servers of Prefect and MLflow, a worker and the pages, and put every project on its schedule.

    All of it listens on this machine alone and runs on until `loopline down`; what crashes is started again. A
    service that PREFECT_API_URL or MLFLOW_TRACKING_URI names elsewhere is used as it is. Projects whose spec says
    `serve: {up: true}` are served too.

    Example: loopline up --port mlflow=5001
    """
    from flows.platform import bring_up, take_down

    workspace = Workspace.find()
    workspace.make()
    stores.configure(workspace)
    asked = dict(_wish(text) for text in wishes)
    bring_up(workspace, asked, _note, _note if as_json else _line)
    if as_json:
        options.print_json({"services": {state.name: state.told() for state in services_of(workspace)}})
    if foreground:
        try:
            _stay()
        finally:
            take_down(workspace, _note)


def _stay() -> None:
    import threading

    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        _note("ending; the loops under way go on with the next `loopline up`")


def _wish(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdecimal():
        raise UsageError(f"got --port {text!r}, expected SERVICE=NUMBER, such as --port mlflow=5001")
    return name, int(number)


def _line(state: ServiceState | str) -> None:
    click.echo(state if isinstance(state, str) else f"{state.name:<10} {state.url or state.state}")


def _note(text: ServiceState | str) -> None:
    if isinstance(text, str):
        click.echo(text, err=True)
