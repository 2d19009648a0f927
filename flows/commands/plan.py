"""`loopline plan`: shows what a run would do, from the records alone, or how a cluster would train the net."""

from __future__ import annotations

import time
from typing import Any

import click

from flows.console import options
from flows.console.history import looked
from models.errors import first_of
from models.pipeline.keys import declared
from models.pipeline.steps import PlannedStep
from models.project_spec.blocks import Spec
from models.training.families import families_of
from models.training.search_course import bag_plan
from tasks.host import stores
from tasks.host.workspace import Project
from tasks.loop.champion import first_look
from tasks.loop.probe import probed_by
from tasks.loop.step_cache import StepCache
from tasks.mlflow import registry_reader
from tasks.ranks.places import checked_spec
from tasks.state import registered_models

WORDS = {"done": "up to date", "run": "would run", "follow": "depends"}
MOST_REASONS = 4


@click.command()
@options.project
@options.overrides
@click.option(
    "--cluster",
    metavar="NAME|FILE|detect",
    help="Compare the parallel plans on this cluster instead: 8xH100, 2x8xA100, laptop, a YAML or JSON file, detect.",
)
@click.option(
    "--probe",
    "is_probed",
    is_flag=True,
    help="Fit the estimators that the spec names by reference on a few drawn rows, and compare their graphs.",
)
@options.as_json
def command(project: str, overrides: tuple[str, ...], cluster: str | None, is_probed: bool, as_json: bool) -> None:
    """Show for each step what `loopline run PROJECT` would do, and which input changed. Runs nothing.

    A step after one that runs may still turn out to be up to date. With --cluster: the memory and time that each
    parallel plan would need on the cluster, which plans fit, and which is best. With --probe: it runs an estimator's
    code at once, on drawn rows, as the search or the training would before all else.

    Example: loopline plan flights -s train.lr=0.01

    Example: loopline plan mnist --cluster 8xH100
    """
    this_project = stores.open_project(project)
    spec = checked_spec(this_project, overrides, is_for_here=cluster is None, needs_source=cluster is None)
    if cluster is not None:
        _weigh(this_project, spec, cluster, project, as_json)
        return
    if is_probed:
        _probe(this_project, spec, as_json)
        return
    step_cache, planned = _planned(this_project, spec)
    if step_cache.store and any(step.state != "done" for step in planned):
        step_cache.store.check()
    steps = [step.step for step in planned if step.state != "done"]
    probes = {step: {"probes": nets} for step in steps if (nets := probed_by(spec, step))}
    bags = _bags(step_cache, spec) if "search" in steps else ""
    if as_json:
        options.print_json(
            [
                {
                    **_facts(step),
                    **probes.get(step.step, {}),
                    **({"bag": bags} if bags and step.step == "search" else {}),
                }
                for step in planned
            ]
        )
        return
    for step in planned:
        reasons = "; ".join(step.reasons[:MOST_REASONS]) or _own_inputs(step)
        further = f" (+{len(step.reasons) - MOST_REASONS} more)" if len(step.reasons) > MOST_REASONS else ""
        click.echo(f"{step.step:<18} {WORDS[step.state]:<10} {reasons}{further}".rstrip())
    if bags:
        click.echo(bags)
    for step_name, probed in probes.items():
        click.echo(
            f"{step_name} begins with a probe of {', '.join(probed['probes'])}, which runs its code on drawn rows: "
            f"`loopline plan {project} --probe` does so at once"
        )
    if all(step.state == "done" for step in planned):
        click.echo("nothing to do")


def _planned(project: Project, spec: Spec) -> tuple[StepCache, list[PlannedStep]]:
    first_look(project.workspace, [spec.name])
    if owner := registry_reader.foreign_owner(project.workspace.state, spec.name):
        click.echo(f"a run would be refused: {registered_models.foreign(spec.name, owner)}", err=True)
    projection = registered_models.projection_of(project.workspace.state, spec.name)
    if projection.number:
        click.echo(looked(projection.looked, time.time()), err=True)
    step_cache = StepCache(project, spec)
    return step_cache, step_cache.plan()


def _bags(step_cache: StepCache, spec: Spec) -> str:
    """Return what the search does about bags, by the rows that were prepared last; empty if it has no choice."""
    record = step_cache.records.latest("prepare")
    result = record.result if record is not None else {}
    rows = result.get("rows")
    return bag_plan(spec, families_of(spec), result.get("task"), rows["train"] + rows["validation"] if rows else None)


def _facts(step: PlannedStep) -> dict[str, Any]:
    return {"step": step.step, "state": step.state, "reasons": step.reasons, "reads": _seen(step)}


def _seen(step: PlannedStep) -> list[str]:
    """Return what own code was seen to read and import in a step that is done."""
    parts = step.record.parts if step.record else {}
    stated = declared(parts)
    return [part.partition(":")[2] for part in parts if part not in stated]


def _own_inputs(step: PlannedStep) -> str:
    seen = _seen(step)
    return f"own code read {first_of(seen, MOST_REASONS, ', ')}" if seen else ""


def _probe(project: Project, spec: Spec, as_json: bool) -> None:
    from tasks.operations.plan import probe_at_once

    differences = probe_at_once(project, spec)
    if as_json:
        options.print_json(differences)
        return
    for net, difference in differences.items():
        click.echo(f"{net}: fitted twice with equal bytes; its graph is {difference:.1g} apart from it at most")


def _weigh(project: Project, spec: Spec, cluster: str, name: str, as_json: bool) -> None:
    from flows.console.planning import print_planning
    from tasks.operations.plan import plan_cluster

    weighed = plan_cluster(project, spec, cluster)
    if as_json:
        options.print_json(weighed.as_json())
    else:
        print_planning(weighed, name)
