"""`loopline release`: runs a version beside the champion as canary or shadow, and shows their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flows.console import options
from models.errors import UsageError
from models.judge.gates import number as shown
from models.judge.gates import signed
from models.report.pages import interval
from models.serving.registry import champion_words
from tasks.host import stores

if TYPE_CHECKING:
    from models.serving.shadow_comparison import ShadowComparison
    from tasks.host.workspace import Workspace
    from tasks.release.status import ReleaseStatus

MOST_ENTRIES = 5


@click.command()
@options.project
@click.option(
    "--canary",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Canary: share of the requests that it answers.",
)
@click.option("--shadow", is_flag=True, help="Shadow: it predicts the logged requests in the background.")
@click.option("--version", "number", metavar="N", help="Which version. Default: the challenger.")
@click.option("--end", "is_end", is_flag=True, help="End the canary or the shadow.")
@click.option("--return", "is_return", is_flag=True, help="End a canary; without one, roll the champion back.")
@click.option("--history", "is_history", is_flag=True, help="Show all moves: who, when, why, and what MLflow has.")
@click.option("--reason", default="a person asked", show_default=True, help="Kept in the journal.")
@options.as_json
def command(
    project: str,
    canary: float | None,
    shadow: bool,
    number: str | None,
    reason: str,
    as_json: bool,
    **acts: bool,
) -> None:
    """Show which versions of PROJECT answer and how each does, or change the canary or the shadow.

    Servers see a change within two seconds. It ends with the champion that it was made for.

    Example: loopline release flights --canary 0.1 --version 4

    Example: loopline release flights --history
    """
    from tasks.loop.champion import first_look, open_registry
    from tasks.mlflow.release_plans import begin, stop
    from tasks.release.status import release_status
    from tasks.state.champion_moves import moves_of

    if (canary is not None or shadow) + sum(acts.values()) > 1:
        raise UsageError("got several of --canary or --shadow, --end, --return, --history: expected one of them")
    if number is not None and canary is None and not shadow:
        raise UsageError("got --version alone: say what it is for, --canary SHARE or --shadow")
    this_project = stores.open_project(project)
    spec = this_project.spec()
    if not moves_of(this_project.workspace.state, spec.name, limit=1):
        first_look(this_project.workspace, [spec.name])
    if acts["is_history"]:
        _history(this_project.workspace, spec.name, as_json)
        return
    if canary is not None or shadow:
        registry = open_registry(this_project.workspace, spec.name)
        begin(registry, number, reason, share=canary, is_shadow=shadow)
    elif acts["is_end"] or acts["is_return"]:
        stop(open_registry(this_project.workspace, spec.name), reason, is_return=acts["is_return"])
    status = release_status(this_project, spec)
    if as_json:
        options.print_json(status.model_dump())
    else:
        _show(status)


def _history(workspace: Workspace, project: str, as_json: bool) -> None:
    from flows.console.history import history, print_history

    document = history(workspace, project)
    if as_json:
        options.print_json(document)
    else:
        print_history(document)


def _show(status: ReleaseStatus) -> None:
    planned = []
    if status.plan.canary:
        planned.append(f"{status.plan.canary.share:.0%} by version {status.plan.canary.version}")
    if status.plan.shadow:
        planned.append(f"version {status.plan.shadow} as a shadow")
    trial = f", beside it {' and '.join(planned)}" if planned else ""
    champion = f"champion {status.champion}" if status.champion else champion_words(None)
    servers = f"; servers: {status.servers}" if status.servers else ""
    click.echo(f"{status.project}: {champion}{trial}; workers here: {status.workers}{servers}")
    if status.versions:
        click.echo(f"\n{'version':<9}{'role':<10}{'share':>6}{'answers':>10}{'failed':>8}{'slow':>7}  realised")
    for version in status.versions:
        tally, realised = version.tally, version.realised
        value = (
            f"{shown(realised.value)} ({interval(realised.low, realised.high)}) {version.state}" if realised else "–"
        )
        click.echo(
            f"{version.version:<9}{version.role:<10}{version.share:>6.0%}"
            f"{tally.answers:>10}{tally.failed:>8}{tally.slow:>7}  {version.why or value}"
        )
    late = sorted(
        {version.version for version in status.versions if version.role in ("canary", "shadow")}
        - set(status.plan.versions)
    )
    if late and (status.workers or status.servers):
        click.echo(f"the servers follow in a moment: as this was read they still tried version {', '.join(late)}")
    for text in status.behind:
        click.echo(f"behind: {text}")
    if status.comparison:
        _show_comparison(status.comparison)
    for change in status.journal[:MOST_ENTRIES]:
        click.echo(
            f"{'' if change is not status.journal[0] else chr(10)}{change.number}: {change.action}: {change.reason}"
        )


def _show_comparison(comparison: ShadowComparison) -> None:
    click.echo(
        f"\nshadow {comparison.version} on the last {comparison.num_rows} predictions, beside what was answered:"
    )
    if comparison.agreement is not None:
        click.echo(f"  same class       {comparison.agreement:.2%}")
    if comparison.distance is not None:
        click.echo(f"  mean difference  {shown(comparison.distance)} of the scores")
    if comparison.difference is not None:
        gain = comparison.difference
        between = "" if gain.low is None or gain.high is None else f" ({signed(gain.low)} to {signed(gain.high)})"
        click.echo(
            f"  {comparison.metric:<17}{shown(comparison.shadow)} against {shown(comparison.answered)}: "
            f"{signed(gain.value or 0.0)}{between}, {comparison.num_labelled} labels"
        )
    elif comparison.num_rows:
        click.echo(f"  {comparison.num_labelled} labels: too few to say who is right")
    if comparison.note:
        click.echo(f"  {comparison.note}")
