"""The `monitor` flow: one monitoring run, its state, and its artifacts on Prefect's page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prefect import State, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.console import reporting
from models.errors import LooplineError
from models.readable import readable
from models.serving.registry import champion_words
from tasks.host import stores
from tasks.host.workspace import Project, Workspace
from tasks.operations.arrivals import announce
from tasks.platform import idle_monitoring
from tasks.platform.report_pages import address_of

if TYPE_CHECKING:
    from models.monitoring.report import MonitoringReport, WindowReport

STATES = {"green": "Well", "amber": "Warned", "red": "Alarmed"}
MOST_WINDOWS = 20


def _run_name() -> str:
    folder = Workspace.find().project(flow_run.parameters["project"]).folder
    return f"{folder.name}-monitor-{datetime.now(UTC):%Y%m%d-%H%M%S}"


@flow(name="monitor", flow_run_name=_run_name, persist_result=False)
def monitor(project: str) -> State[Any]:
    """Monitor the champion's newest predictions: contract, realised metric, drift; send signals as events.

    The run ends in the state Well, Warned or Alarmed; each of them counts as success. A scheduled run that would see
    nothing new ends before it starts, as Skipped.

    Args:
        project: A name under projects/, or the path of a folder with a project.yaml.
    """
    this_project = stores.open_project(project)
    before = idle_monitoring.stats_of(this_project)
    is_source_checked = arrive(this_project)
    findings = look(this_project)
    publish(this_project, findings)
    if is_source_checked and not findings.notes:  # else the next run tries again
        idle_monitoring.remember(this_project.state(findings.project), before)
    return Completed(name=STATES[findings.state], message=findings.reason, data=_summary(findings))


@task(name="arrive", task_run_name="arrive", cache_policy=NO_CACHE, persist_result=False)
def arrive(project: Project) -> bool:
    """Send events for new data and labels; return whether the source could be checked: an error is logged alone."""
    try:
        announce(project)
    except LooplineError as error:
        reporting.current().note(f"the source cannot be checked: {error}")
        return False
    return True


@task(name="look", task_run_name="look", cache_policy=NO_CACHE, persist_result=False, retries=2, retry_delay_seconds=5)
def look(project: Project) -> MonitoringReport:
    """Run the monitoring and return its report; Prefect retries this task after an error."""
    from tasks.operations.monitor import look as act

    return act(project, project.spec())


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
def publish(project: Project, findings: MonitoringReport) -> None:
    """Publish the report as artifacts: a text, a table of the windows, and a link to the page."""
    from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

    key = f"{findings.project.replace('_', '-')}-monitor"
    create_markdown_artifact(in_words(findings), key=key, description=f"{findings.project}: {findings.reason}")
    windows = findings.of_champion()[-MOST_WINDOWS:]
    if windows:
        create_table_artifact([_row(window) for window in windows], key=f"{key}-windows")
    page = project.state(findings.project) / "monitoring" / "monitoring.html"
    address = address_of(project.workspace, findings.project, page)
    create_link_artifact(address, link_text=page.name, key=f"{key}-page", description=findings.reason)


def in_words(findings: MonitoringReport) -> str:
    """Return the findings as Markdown."""
    last = next(reversed(findings.of_champion()), None)
    light = {"green": "🟢", "amber": "🟠", "red": "🔴"}[findings.state]
    lines = [f"# {light} {findings.reason}", ""]
    champion = champion_words(findings.champion)
    lines.append(f"{champion[0].upper()}{champion[1:]}; {findings.num_predictions:,} predictions, ")
    lines[-1] += f"{findings.num_labels:,} labels, {findings.num_unknown_labels:,} labels of unknown predictions."
    lines += [f"- {note}" for note in findings.notes]
    if last and last.features:
        lines += ["", "| feature | PSI | p (Holm) | |", "|---|---|---|---|"]
        lines += [
            f"| {drift.name} | {_short(drift.psi)} | {_short(drift.p_holm)} | {drift.level} |"
            for drift in last.features[:10]
        ]
    return "\n".join(lines)


def _row(window: WindowReport) -> dict[str, Any]:
    realised = window.realised
    return {
        "begin": f"{datetime.fromtimestamp(window.begin, UTC):%Y-%m-%d %H:%M}",
        "state": window.state,
        "predictions": window.num_predictions,
        "labels": window.num_labels,
        "realised": _short(realised.value if realised else None),
        "estimated": _short(window.estimated),
        "drifted features": sum(drift.level != "none" for drift in window.features),
        "why": window.reason,
    }


def _summary(findings: MonitoringReport) -> dict[str, Any]:
    names = {"project", "at", "champion", "state", "reason", "num_predictions", "num_labels"}
    return findings.model_dump(mode="json", include=names)


def _short(value: float | None) -> str:
    return "–" if value is None else readable(value)
