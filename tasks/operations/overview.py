"""Builds the overview of all projects from records, files and the registry; asks no server and runs nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from models.errors import LooplineError, StoreError
from models.files import ParsedFiles, read_json
from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME, DATA_STEPS, PlannedStep
from models.project_spec.blocks import Spec
from models.project_spec.references import ALIASES
from models.project_spec.schedule import parse
from models.report import facts
from models.report.data import drifting, failing
from models.report.light import light, workspace_light
from models.serving.registry import ChampionMove, RegisteredVersion
from models.serving.registry_comparison import Projection
from models.serving.releases import release_of
from models.training.search_space import shown
from models.triggers.signal import EXPLAINED, Decision, Kind, Outcome, PastLoop, Signal
from tasks.host import database, processes
from tasks.host.object_store import object_store
from tasks.host.workspace import Project, Workspace
from tasks.loop import decisions
from tasks.loop.history import LoopRecord, is_running, last_loops, newest_loops
from tasks.loop.step_cache import Memories, Recorded, StepCache, memories_of
from tasks.mlflow import model_cache, registry_reader
from tasks.operations.spec_cache import current_spec, current_specs
from tasks.platform import open_signals
from tasks.platform.report_pages import known_pages, loop_pages
from tasks.platform.services import ServiceState, services_of
from tasks.state import findings, registered_models, shared_files
from tasks.state.champion_moves import newest_moves
from tasks.state.lags import lags
from tasks.state.step_records import latest_records, newest_records
from tasks.state.store_sizes import measured

MOST_LOOPS = 10
"""Number of the last loops, verdicts and moves of a project that its page shows."""
MOST_MOVES = 100
"""Among these the champion to which a rollback would go is looked for."""
MOST_DECISIONS = 30
"""Among these may be a question that waits for a person; no page shows more than 10."""
ENDED_EARLY = ("failed", "rejected", "cancelled", "killed")
STATUSES = ("rejected", "error", "warned", "valid")  # worst first


def overview(
    workspace: Workspace, chosen: Sequence[Project] | None = None, now: float | None = None, *, plans: bool = True
) -> facts.Overview:
    """Return the overview of a workspace.

    Args:
        workspace: The workspace; its tools' environment must be set (`stores.configure`).
        chosen: Only these projects, with their last loops and moves; default: all, with the very last of each only.
        now: Unix time; default: the system clock.
        plans: Whether it says what a run would carry out now; a page of many projects does not show it.

    Cost: 4 ms a project with all its records, 1 ms without its plan, independent of its history.
    """
    now = time.time() if now is None else now
    projects = _all_facts(workspace, chosen, now, MOST_LOOPS if chosen else 1, plans=plans)
    usage = shutil.disk_usage(workspace.state if workspace.state.exists() else workspace.root)
    disk = facts.DiskUsage(free_bytes=usage.free, total_bytes=usage.total)
    services = {state.name: _service(state) for state in services_of(workspace)}
    if (
        "mlflow" in services
        and services["mlflow"].state == "elsewhere"
        and any(project.registry for project in projects)
    ):
        services["mlflow"] = services["mlflow"].model_copy(update={"detail": "cannot be read"})
    sizes = measured(workspace)
    return facts.Overview(
        workspace=str(workspace.root),
        at=now,
        light=workspace_light(projects, services, disk),
        services=services,
        disk=disk,
        stores=[facts.StoreUsage(name=name, size_bytes=size) for name, size in sizes.stores.items()],
        sized=sizes.at,
        projects=projects,
    )


def known_projects(workspace: Workspace, folders: Mapping[str, Path] | None = None) -> list[Project]:
    """Return the projects under `projects/`, then existing projects elsewhere of which this workspace ran a loop.

    `folders` is what `Workspace.folders` returned, if that is known.
    """
    return [*workspace.projects(), *workspace.elsewhere(folders).values()]


def _service(state: ServiceState) -> facts.ServiceSummary:
    return facts.ServiceSummary(state=state.state, url=state.url, restarts=state.restarts, detail=state.detail)


def project_named(workspace: Workspace, name: str) -> Project | None:
    """Return the known project whose spec has this name, or None; the name is compared, never used as a path."""
    matches = sorted(known_projects(workspace), key=lambda project: project.folder.name != name)
    return next((project for project in matches if name_of(project) == name), None)


def name_of(project: Project) -> str:
    """Return the name in the spec, or the folder's name if the spec cannot be read."""
    try:
        return current_spec(project).name
    except LooplineError:
        return project.folder.name


class _Rows(NamedTuple):
    """What the state database holds of the projects, by name: one query for each table, however many projects."""

    recorded: Recorded
    last_loop: Mapping[str, LoopRecord]
    loops: Mapping[str, list[PastLoop]]
    verdicts: Mapping[str, list[StepRecord]]
    decisions: Mapping[str, list[Decision]]
    undecided: Mapping[str, list[Signal]]
    moves: Mapping[str, list[ChampionMove]]
    projections: Mapping[str, Projection]
    behind: Mapping[str, list[facts.Lag]]
    most: int
    plans: bool


def _all_facts(
    workspace: Workspace, chosen: Sequence[Project] | None, now: float, limit: int, *, plans: bool
) -> list[facts.ProjectFacts]:
    with database.reading(workspace.state), registry_reader.reading():  # one connection for all projects
        folders = workspace.folders()
        projects = known_projects(workspace, folders) if chosen is None else [*chosen]
        memories = memories_of(workspace)
        specs = current_specs(workspace, projects, memories.hashes)
        names = sorted({spec.name for spec in specs if isinstance(spec, Spec)})
        rows = _rows(workspace, folders, names, limit, plans=plans)
        return [_lit(project, spec, rows, now, memories) for project, spec in zip(projects, specs, strict=True)]


def _rows(workspace: Workspace, folders: Mapping[str, Path], names: Sequence[str], limit: int, *, plans: bool) -> _Rows:
    state = workspace.state
    latest = latest_records(state, names, [*BY_NAME] if plans else [step.name for step in DATA_STEPS])
    registered = {name: [record.result] if (record := latest[name].get("register")) else [] for name in names}
    numbers = {name: [str(result.get("version")) for result in results] for name, results in registered.items()}
    moves = newest_moves(state, names, MOST_MOVES if limit > 1 else 1)
    return _Rows(
        Recorded(folders, latest, registry_reader.all_named(state, moves, numbers)),
        last_loops(state, names),
        newest_loops(state, names, limit),
        newest_records(state, names, "promote", limit),
        decisions.newest(state, names, MOST_DECISIONS),
        open_signals.undecided_of_all(workspace),
        moves,
        registered_models.projections(state),
        _behind(state),
        limit,
        plans,
    )


def _behind(state: Path) -> dict[str, list[facts.Lag]]:
    by_project: dict[str, list[facts.Lag]] = {}
    for lag in lags(state):
        by_project.setdefault(lag.project, []).append(lag)
    return by_project


def _lit(
    project: Project, spec: Spec | LooplineError, rows: _Rows, now: float, memories: Memories
) -> facts.ProjectFacts:
    """Return the facts with their light; an unreadable spec or store is reported in `error`, not raised."""
    try:
        if isinstance(spec, LooplineError):
            raise spec
        result = _facts(project, spec, rows, now, memories)
    except LooplineError as error:
        result = facts.ProjectFacts(name=project.folder.name, folder=str(project.folder), error=str(error))
    return result.model_copy(update={"light": light(result)})


def _facts(project: Project, spec: Spec, rows: _Rows, now: float, memories: Memories) -> facts.ProjectFacts:
    step_cache = StepCache(project, spec, memories, rows.recorded)
    registry = _registry(step_cache, plans=rows.plans)
    planned = registry.planned
    owed = [step.step for step in planned if step.state != "done"]
    records = {step.step: step.record for step in planned if step.record and step.state == "done"}
    history = rows.verdicts.get(spec.name, [])
    last = rows.last_loop.get(spec.name)
    decided = rows.decisions.get(spec.name, [])
    loops = rows.loops.get(spec.name, [])
    moves, projection = rows.moves.get(spec.name, []), rows.projections.get(spec.name, Projection())
    result = facts.ProjectFacts(
        name=spec.name,
        folder=str(project.folder),
        description=spec.description,
        registry=registry.trouble,
        mlflow=projection.trouble,
        mlflow_looked=projection.looked,
        behind=rows.behind.get(spec.name, []),
        champion=registry.champion,
        challenger=registry.challenger,
        previous=registry.previous,
        moves=moves[: rows.most],
        loop=_loop(step_cache.state, last, history, loops),
        history=_history(loops, history),
        owed=owed,
        data=_data(step_cache, last, records),
        search=_search(step_cache, records, spec),
        monitor=findings.load(step_cache.state),
        decisions=decided,
        waiting=_waiting(decided, spec.retrain.ask_timeout_s, now),
        undecided=[signal for signal in rows.undecided.get(spec.name, ()) if signal.kind in _kinds(spec)],
        next_loop=_next(spec.retrain.schedule, spec.retrain.timezone, now),
        next_monitoring=_next(spec.monitor.schedule, spec.retrain.timezone, now),
        schedule=_schedule(spec),
        triggers=list(spec.retrain.on),
        predictions=_predictions(step_cache.state),
        serving=_serving(step_cache.state),
        pages=list(known_pages(step_cache.state, _shared_pages(records))),
        backtest=_backtest(step_cache.state),
    )
    versions = {version.loop_id for version in (registry.champion, registry.challenger) if version}
    ids = dict.fromkeys([*result.loops_of_versions.values(), *(ended.loop_id for ended in result.history)])
    of_loops = {loop_id: loop_pages(step_cache.state, loop_id, is_shared=loop_id in versions) for loop_id in ids}
    return result.model_copy(update={"loop_pages": {loop_id: pages for loop_id, pages in of_loops.items() if pages}})


class _Registered(NamedTuple):
    """What needs the registry. While it is away the plan ends before the training, and the rest is empty."""

    planned: list[PlannedStep]
    champion: RegisteredVersion | None = None
    challenger: RegisteredVersion | None = None
    previous: str | None = None
    trouble: str = ""


def _registry(step_cache: StepCache, *, plans: bool) -> _Registered:
    name, plan = step_cache.spec.name, step_cache.plan if plans else partial(_plan_in_doubt, step_cache)
    try:
        champion, challenger, previous = (step_cache.version(alias) for alias in ALIASES)
        return _Registered(
            plan(),
            champion and model_cache.with_verdict(name, champion),
            challenger and model_cache.with_verdict(name, challenger),
            previous.number if previous else None,
        )
    except StoreError as error:
        return _Registered(step_cache.plan_data() if plans else plan(), trouble=str(error))


def _plan_in_doubt(step_cache: StepCache) -> list[PlannedStep]:
    """Return the plan of the data where the last records found something: a file that was put back has older ones."""
    last = [step_cache.records.latest(step) for step in ("ingest", "validate-raw", "validate-prepared")]
    results = [record.result for record in last if record]
    is_clean = all(result.get("status", "valid") == "valid" and not result.get("feedback") for result in results)
    return [] if is_clean else step_cache.plan_data()


def _serving(state: Path) -> facts.ServingSummary | None:
    release = release_of(read_json(state / "serving" / "release.json"))
    if release is None:
        return None
    workers = [read_json(path).get("process") for path in (state / "serving" / "workers").glob("*.json")]
    alive = sum(processes.is_alive_here(process) for process in workers if process)
    return facts.ServingSummary(workers=alive, answers=release.words, troubles=release.troubles)


def _backtest(state: Path) -> str:
    """Return the summary of the last backtest."""
    return str(read_json(state / "backtest" / "backtest.json").get("summary", ""))


def _loop(place: Path, last: LoopRecord | None, history: list[StepRecord], ended: list[PastLoop]) -> facts.LastLoop:
    outcome = history[0].result if history else {}
    if last is None:
        return facts.LastLoop(decision=outcome.get("decision"), reasons=outcome.get("reasons", []))
    state = "killed" if last.state == "running" and not is_running(place, last) else last.state
    return facts.LastLoop(
        state=state,
        loop_id=last.loop_id,
        began=last.began,
        trigger=last.trigger,
        flow_run=last.flow_run,
        step=last.step if state == "running" or state in ENDED_EARLY else "",
        failure=next((loop.reason for loop in ended[:1] if loop.loop_id == last.loop_id and state in EXPLAINED), ""),
        decision=outcome.get("decision"),
        reasons=outcome.get("reasons", []),
    )


def _ended(record: StepRecord) -> facts.FinishedLoop:
    outcome: Outcome = "promoted" if record.result.get("decision") == "promote" else "kept"
    return facts.FinishedLoop(loop_id=record.loop_id, ended=record.finished, outcome=outcome, **_verdict(record))


def _data(step_cache: StepCache, last: LoopRecord | None, records: dict[str, StepRecord]) -> facts.IngestSummary:
    def of(step: str) -> StepRecord | None:
        return records.get(step) or step_cache.records.latest(step)

    ingest, version = of("ingest"), of("version")
    checks = [record for step in ("validate-raw", "validate-prepared") if (record := of(step))]
    statuses = {str(check.result.get("status", "")) for check in checks}
    status = next((status for status in STATUSES if status in statuses), "")
    of_checks = [_findings(_report(step_cache, check)) for check in checks]
    if last and last.state in ("failed", "rejected"):
        for stage in ("raw", "prepared"):
            path = step_cache.state / "quarantine" / last.loop_id / stage / "report.json"
            if last.state == "rejected":
                with contextlib.suppress(StoreError):
                    shared_files.fetch(step_cache.state, path)
            if path.is_file():
                status, of_checks = "rejected", [_findings(path)]
    return facts.IngestSummary(
        ingested=ingest.finished if ingest else None,
        rows=ingest.result.get("rows") if ingest else None,
        feedback=ingest.result.get("feedback", {}) if ingest else {},
        dataset=str(version.result.get("prepared", "")) if version else "",
        status=status,
        failing=[line for report in of_checks for line in report.failing],
        drifting=[line for report in of_checks for line in report.drifting],
    )


class _Findings(NamedTuple):
    """What a validation report finds, in words."""

    failing: list[str]
    drifting: list[str]


_reports: ParsedFiles[_Findings] = ParsedFiles()


def _findings(path: Path) -> _Findings:
    def parse() -> _Findings:
        report = read_json(path)
        return _Findings(failing(report), drifting(report))

    return _reports.of(path, parse)


def _shared_pages(records: dict[str, StepRecord]) -> set[str]:
    """Return the pages that the object store has, as some machine has finished their steps."""
    pages = {"card": "card", "validate-raw": "validation-raw", "validate-prepared": "validation-prepared"}
    return {page for step, page in pages.items() if step in records and object_store()}


def _report(step_cache: StepCache, record: StepRecord) -> Path:
    named = [name for name in record.outputs if name.endswith("/report.json")]
    path = step_cache.records.path(named[0] if named else "report.json")
    if step_cache.store and record.snapshot and not path.exists():
        with contextlib.suppress(StoreError):
            step_cache.store.fetch(record, step_cache.work(record.step, record.key), path)
    return path


def _search(step_cache: StepCache, records: dict[str, StepRecord], spec: Spec) -> facts.SearchSummary:
    record = records.get("search") or step_cache.records.latest("search")
    if record is None or not spec.search.trials:
        return facts.SearchSummary()
    result = record.result
    return facts.SearchSummary(
        study=str(result.get("study", "")),
        trials=int(result.get("trials", 0)),
        value=result.get("best_value"),
        params=shown(result.get("params", {})),
    )


def _kinds(spec: Spec) -> tuple[Kind, ...]:
    """Return the kinds of signals that a project answers to, and those of another version of Loopline."""
    return ("person", "unknown", *spec.retrain.on)


def _waiting(decided: list[Decision], timeout_s: float, now: float) -> facts.PendingApproval | None:
    """Return the unanswered question, or None: a signal whose last decision is `ask`, without an answer or an end."""
    last = {decision.signal.id: decision for decision in reversed(decided)}
    for decision in last.values():
        until = decision.at + timeout_s
        if decision.action == "ask" and decision.flow_run and until > now and not decision.by:
            return facts.PendingApproval(
                flow_run=decision.flow_run, reason="; ".join(decision.reasons), since=decision.at, until=until
            )
    return None


def _history(loops: list[PastLoop], verdicts: list[StepRecord]) -> list[facts.FinishedLoop]:
    """Return finished loops with their verdicts; for old loops without a stored end, only the verdicts."""
    by_loop = {record.loop_id: record for record in verdicts}
    past = [
        facts.FinishedLoop(
            loop_id=loop.loop_id,
            ended=loop.ended,
            outcome=loop.outcome,
            trigger=loop.trigger,
            seconds=loop.ended - loop.began,
            device_seconds=loop.device_seconds,
            **{"reason": loop.reason, **_verdict(by_loop.get(loop.loop_id))},
        )
        for loop in loops
    ]
    loop_ids = {loop.loop_id for loop in loops}
    past += [_ended(record) for record in verdicts if record.loop_id not in loop_ids]
    return sorted(past, key=lambda ended: ended.ended, reverse=True)[:MOST_LOOPS]


def _verdict(record: StepRecord | None) -> dict[str, str]:
    if record is None:
        return {}
    reasons = record.result.get("reasons") or [""]
    return {"version": str(record.result.get("version", "")), "reason": str(reasons[0])}


def _predictions(state: Path) -> facts.PredictionLogSummary:
    predicted, labels = _parts(state / "predictions"), _parts(state / "labels")
    return facts.PredictionLogSummary(
        last=max((part.st_mtime for part in predicted), default=None),
        size_bytes=sum(part.st_size for part in (*predicted, *labels)),
    )


def _parts(folder: Path) -> list[os.stat_result]:
    try:
        with os.scandir(folder) as entries:
            return [file.stat() for file in entries if file.name.endswith(".parquet")]
    except OSError:
        return []  # no folder yet, or the compactor removed a file during the listing


def _schedule(spec: Spec) -> str:
    """Return the schedule as the spec writes it, with the time zone unless it is UTC."""
    schedule, zone = spec.retrain.schedule or "", spec.retrain.timezone
    return schedule if zone == "UTC" or not schedule else f"{schedule}, {zone}"


def _next(schedule: str | None, timezone: str, now: float) -> float | None:
    return parse(schedule, timezone).next(now) if schedule else None
