"""`loopline up`: starts the platform; from then on the loops run automatically."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

import click

from flows.console import options
from models.errors import UsageError
from models.report.overview_page import front_page
from tasks.host import stores
from tasks.host.http_guard import SERVE_TOKEN, token_path
from tasks.host.server_access import secret_path
from tasks.host.workspace import Workspace
from tasks.platform.services import ServiceState, projects_to_serve, services_of, supervisor

LOOK_S = 0.5
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--port",
    "port_options",
    multiple=True,
    metavar="SERVICE=NUMBER",
    help="Port of prefect, mlflow, overview, optuna or serve, kept from then on; 0: any but the usual.",
)
@click.option("--foreground", is_flag=True, help="Stay, and end the platform at Ctrl-C or SIGTERM.")
@options.as_json
def command(port_options: tuple[str, ...], foreground: bool, as_json: bool) -> None:
    """Start the servers of Prefect and MLflow, a worker and the pages, and schedule every project.

    All listen on this machine only and run until `loopline down`; a service that crashes is started again. If
    PREFECT_API_URL or MLFLOW_TRACKING_URI name other servers, these are used. Projects with `serve: {up: true}` in the
    spec are served too.

    Example: loopline up --port mlflow=5001

    Example: loopline up --foreground
    """
    from flows.prefect.platform import bring_up

    workspace = stores.open_workspace()
    workspace.make()
    requested = dict(_port_option(text) for text in port_options)
    with _ended_by_hand(workspace) if foreground else contextlib.nullcontext():
        bring_up(workspace, requested, _note, _note if as_json else _line)
        _say(
            f"Prefect, MLflow and Optuna ask for the secret in {secret_path(workspace)}: Prefect's page for the whole "
            "line, the others for user and password, before and after its colon"
        )
        _say(f"The overview asks for the token in {token_path(workspace)}")
        if projects_to_serve(workspace):
            _say(f"The served models ask for the token in {token_path(workspace, SERVE_TOKEN)}")
        if as_json:
            options.print_json({"services": {state.name: vars(state) for state in services_of(workspace)}})
        while foreground and supervisor(workspace):  # `loopline down` in another terminal also ends this
            time.sleep(LOOK_S)


@contextlib.contextmanager
def _ended_by_hand(workspace: Workspace) -> Iterator[None]:
    """End the platform at Ctrl-C, SIGTERM or the terminal's end, also during the start or where SIGINT was ignored."""
    from flows.prefect.platform import take_down

    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _say("ending; the next `loopline up` continues the running loops")
        take_down(workspace, _say)


def _say(text: str) -> None:
    """Print a note; ignore the error if the terminal is gone."""
    with contextlib.suppress(OSError):
        _note(text)


def _port_option(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not number.isdecimal():
        raise UsageError(f"got --port {text!r}, expected SERVICE=NUMBER, such as --port mlflow=5001")
    return name, int(number)


def _line(state: ServiceState | str) -> None:
    if not isinstance(state, str):
        state = f"{state.name:<10} {front_page(state.name, state.url) if state.url else state.state}"
    click.echo(state)


def _note(text: ServiceState | str) -> None:
    if isinstance(text, str):
        click.echo(text, err=True)
