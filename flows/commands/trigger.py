"""`loopline trigger`: requests a loop, as a person or because of new data; the platform applies the policy."""

from __future__ import annotations

import getpass
import uuid

import click

from flows.console import options
from tasks.host import database, stores

REASONS = {"person": "a person asked", "new_data": "data came"}


@click.command()
@options.project
@click.option("--kind", type=click.Choice(list(REASONS)), default="person", show_default=True, help="What asks.")
@click.option("--reason", default="", metavar="TEXT", help="The reason, stored with the decision.")
@click.option("--if-grown", is_flag=True, help="Only if the source has new data since the last read.")
@options.as_json
def command(project: str, kind: str, reason: str, if_grown: bool, as_json: bool) -> None:
    """Ask for a retraining of PROJECT. The decision is on Prefect's page, and in `loopline status`.

    A person's request overrides cooldown, quiet hours, missing labels and the circuit breaker, but not a running loop
    or the budget. While the platform is down the event waits on disk.

    Example: loopline trigger flights --reason "the airline changed its codes"

    Example: loopline trigger flights --if-grown
    """
    from models.triggers.signal import Signal
    from tasks.operations import arrivals
    from tasks.platform.services import supervisor
    from tasks.prefect import events

    workspace = stores.open_workspace()
    workspace.make()
    this_project = workspace.project(project)
    spec = this_project.spec()
    name = spec.name
    arrivals.refuse_unheard(this_project, spec, "new_data" if if_grown else kind)
    if if_grown:
        signals = arrivals.announce(this_project)
    else:
        now = database.current_time(workspace.state)
        words = reason or f"{REASONS[kind]} ({getpass.getuser()})"
        signals = [Signal.model_validate({"id": f"{kind}-{uuid.uuid4()}", "kind": kind, "at": now, "reason": words})]
        events.send(workspace, events.of_signal(name, signals[0]))
    waiting, is_up = events.waiting(workspace), supervisor(workspace) is not None
    if as_json:
        options.print_json({"signals": [signal.model_dump() for signal in signals], "waiting": waiting})
        return
    for signal in signals:
        click.echo(f"{name}: {signal.reason}")
    if not signals:
        click.echo(f"{name}: no new data since the source was last read")
    elif waiting:
        cure = "`loopline deploy`, if the project is not deployed" if is_up else "`loopline up`"
        again = "it is asked again by itself" if is_up else "nothing is lost"
        click.echo(f"Prefect has not taken it yet (events that wait: {waiting}); {again}. Cure: {cure}", err=True)
