"""`loopline run`: runs a project's loop, or shows from the records that there is nothing to do."""

from __future__ import annotations

import sys
from typing import Any

import click

from flows.console import options
from flows.console.summary import print_summary, summary, verdict_markdown
from models.errors import GateRefused
from tasks.host import stores
from tasks.loop.champion import look_if_moved
from tasks.loop.history import is_owed
from tasks.loop.step_cache import StepCache


@click.command()
@options.project
@options.overrides
@click.option(
    "--refresh",
    multiple=True,
    metavar="STEP",
    help="Run this step again although nothing changed, e.g. ingest for a source that grew.",
)
@options.as_json
@click.option("--markdown", is_flag=True, help="Print the verdict as Markdown, such as for a pull request's comment.")
def command(project: str, overrides: tuple[str, ...], refresh: tuple[str, ...], as_json: bool, markdown: bool) -> None:
    """Run the loop of PROJECT: validate, version, search, train, judge, register, promote.

    Steps with a valid recorded result are not repeated; a killed run resumes.

    Example: loopline run flights -s train.epochs=3

    Example: loopline run flights --refresh ingest
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown: got both, expected one of them")
    this_project = stores.open_project(project)
    _check_refresh(refresh)
    spec = this_project.spec(overrides)
    look_if_moved(this_project.workspace, spec.name)
    step_cache = StepCache(this_project, spec)
    plan = step_cache.plan()
    is_unchanged = (
        not refresh and all(planned.state == "done" for planned in plan) and not is_owed(this_project.workspace, spec)
    )
    if not is_unchanged:
        from flows.local_run import carry_round

        if step_cache.store:
            step_cache.store.check()  # before a server is started
        carry_round(this_project, spec.name, list(overrides), list(refresh))
        step_cache = StepCache(this_project, spec)
        plan = step_cache.plan()
    _tell(summary(this_project, step_cache, plan, ran=not is_unchanged), as_json, markdown)


def _check_refresh(refresh: tuple[str, ...]) -> None:
    from models.pipeline.steps import BY_NAME

    for name in refresh:
        if name not in BY_NAME:
            raise click.BadParameter(f"no step {name!r}: one of {', '.join(BY_NAME)}", param_hint="--refresh")


def _tell(document: dict[str, Any], as_json: bool, markdown: bool) -> None:
    """Print the summary with results, decision and reasons; exit with 3 if the verdict was to keep the champion."""
    if as_json:
        options.print_json(document)
    elif markdown:
        click.echo(verdict_markdown(document))
    else:
        print_summary(document)
    if document["decision"] != "promote":
        sys.exit(GateRefused.exit_code)
