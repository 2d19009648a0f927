"""`loopline backtest`: replays a project's past under other retraining policies."""

from __future__ import annotations

import click

from flows.console import options, reporting
from tasks.host import stores


@click.command()
@options.project
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="never, monthly, decay, drift, every, spec (the spec's own), or a YAML file with keys of `retrain`.",
)
@click.option(
    "--from", "begin", metavar="DATE", help="Replay from this date on; earlier rows train the first champion."
)
@click.option("--period", default="month", metavar="month|week|day|N", help="Length of a period; N: this many rows.")
@click.option("--label-delay", default="0", metavar="DURATION", help="Delay between a row and its label: 12h, 7d.")
@options.overrides
@options.as_json
def command(
    project: str,
    policies: tuple[str, ...],
    begin: str | None,
    period: str,
    label_delay: str,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Replay the past of PROJECT in time order under several retraining policies, and recommend one.

    The champion at that time predicts each period; then the live checks and the live policy decide. Trainings are
    cached, so a second replay takes seconds.

    Example: loopline backtest flights --policy never --policy monthly --policy decay

    Example: loopline backtest flights -s retrain.on=[decay] -s retrain.rows=100000
    """
    this_project = stores.open_project(project)
    from flows.console.backtesting import print_backtest, replay
    from tasks.operations.backtest import BacktestRequest, page

    request = BacktestRequest(policies, begin, period, label_delay)
    result = replay(this_project, list(overrides), request, reporting.for_terminal())
    if as_json:
        click.echo(result.model_dump_json(indent=2))
        return
    print_backtest(result, page(this_project, result.project))
