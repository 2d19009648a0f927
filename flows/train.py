"""The loop as a flow: one run for one project, from raw data to a judged and promoted model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from prefect import flow
from prefect.runtime import deployment, flow_run

from flows.console import reporting, summary
from flows.prefect import sigterm
from flows.prefect.steps import step
from tasks.host.workspace import Project, Workspace
from tasks.loop.lifecycle import name_loop, open_loop
from tasks.loop.loop import Loop
from tasks.loop.recording import STOP_SIGNAL
from tasks.operations.reap import reap
from tasks.steps import card as carding
from tasks.steps import export as exporting
from tasks.steps import ingest as ingesting
from tasks.steps import judge as judging
from tasks.steps import prepare as preparing
from tasks.steps import promote as promoting
from tasks.steps import register as registering
from tasks.steps import search as searching
from tasks.steps import train as training
from tasks.steps import validate as validating
from tasks.steps import version as versioning

ingest = step(ingesting.ingest, "ingest", retries=2, timeout_s=3600)
validate_raw = step(validating.validate_raw, "validate-raw")
prepare = step(preparing.prepare, "prepare")
validate_prepared = step(validating.validate_prepared, "validate-prepared")
version = step(versioning.version, "version", retries=1)
search = step(searching.search, "search")
fit = step(training.fit, "train")
export = step(exporting.export, "export")
judge = step(judging.judge, "judge")
register = step(registering.register, "register", retries=2)
promote = step(promoting.promote, "promote", retries=2)
card = step(carding.write_card, "card")


def _loop_id() -> str:
    parameters = flow_run.parameters
    project = Workspace.find().project(parameters["project"])
    return name_loop(project, parameters.get("overrides") or [])


@contextlib.contextmanager
def opened(
    project: Project, overrides: list[str], trigger: str, refresh: list[str], loop_id: str | None = None
) -> Iterator[Loop]:
    """Open the loop of this flow run, and describe its run in MLflow, also after an error."""
    names = {"loop_id": loop_id or flow_run.name, "flow_run_id": flow_run.id}
    reporter = reporting.current()
    with (
        sigterm.timed(),
        sigterm.stoppable(STOP_SIGNAL),
        open_loop(project, overrides, trigger=trigger, reporter=reporter, refresh=refresh, **names) as loop,
        summary.described(loop),
    ):
        yield loop


def round_trip(loop: Loop) -> dict[str, Any]:
    """Run the steps in order and return the result of `promote`; steps with a valid record are not repeated.

    The inputs that a step reads from earlier steps are declared in `models/pipeline/steps.py`.
    """
    ingest(loop)
    validate_raw(loop)
    prepare(loop)
    validate_prepared(loop)
    version(loop)
    search(loop)
    fit(loop)
    export(loop)
    judge(loop)
    register(loop)
    outcome = promote(loop)
    card(loop)
    return outcome.result


@flow(name="train", flow_run_name=_loop_id, persist_result=False)
def train(
    project: str,
    overrides: list[str] | None = None,
    trigger: str = "person",
    refresh: list[str] | None = None,
) -> dict[str, Any]:
    """Run one loop of a project; steps with a valid record are not repeated.

    Args:
        project: A name under projects/, or the path of a folder with a project.yaml.
        overrides: `block.key=value` texts that override the spec.
        trigger: The kind of signal that started this loop.
        refresh: Steps to run again although their record is valid, such as `ingest` for a source that grew.
    """
    this_project = Workspace.find().project(project)
    if deployment.id:  # begun by a worker; the command line has already called the reaper
        reap(this_project.workspace, this_project.spec().name)
    with opened(this_project, overrides or [], trigger, refresh or []) as loop:
        return round_trip(loop)
