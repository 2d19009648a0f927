"""A monitoring run: counts new predictions, judges the windows that changed, reports the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.data.preparation import PREPARATION_FILE, Preparation
from models.errors import StoreError, UsageError
from models.feedback.label_text import TARGET_DTYPES, label_values
from models.files import write_text
from models.identity.hashing import SortedHashSet
from models.judge.verdict import Estimate, Verdict
from models.kinds.task import refusal
from models.metrics.metrics import Metric, metric_of
from models.monitoring.alarms import signals
from models.monitoring.assess import AssessmentRules, WindowPredictions, assess, sum_up, with_decay
from models.monitoring.contract import bounds_of
from models.monitoring.examples import Keys, keys_of, sampled
from models.monitoring.reference import REFERENCE_FILE, Reference
from models.monitoring.report import MonitoringReport, WindowReport
from models.monitoring.tally import Bounds
from models.monitoring.windowing import OpenWindow, WindowingRules, fill
from models.pipeline.keys import canonical, key_of
from models.project_spec.blocks import Spec
from tasks.host import database
from tasks.host.workspace import Project, Workspace
from tasks.mlflow import delivery, registry_reader
from tasks.mlflow.model_cache import VERDICT_FILE, numbered_copy
from tasks.prefect import events
from tasks.state import findings, predictions
from tasks.state.delta.delta_log import DeltaLog
from tasks.state.ingest_segments import receive
from tasks.state.monitoring_store import MonitorStore, opened

FOLDER = "monitoring"
PAGE_FILE = "monitoring.html"
APPENDS_A_TRANSACTION = 32
SHOWN_OF_OTHERS = 20
"""Maximum number of windows of former champions and challengers in the findings."""


def look(project: Project, spec: Spec, now: float | None = None) -> MonitoringReport:
    """Count new predictions and labels, judge the changed windows, write the report, and send metrics and signals.

    Safe to kill at any moment and call again: nothing is counted twice. Metrics and signals that MLflow or Prefect
    cannot accept now are sent by a later run.

    Args:
        project: The project to monitor.
        spec: The project's spec.
        now: Unix time; default: the database's.

    Raises:
        StoreError: The disk, the registry or the log cannot be read; the next run continues from here.
    """
    state = project.state(spec.name)
    folder = state / FOLDER
    receive(state)  # what servers wrote and no compactor has moved yet, and what other hosts wrote
    with opened(folder) as store:
        champion = registry_reader.named(project.workspace.state, spec.name)
        looking = _MonitoringRun(project, spec, state, store, champion.number if champion else None)
        looking.count_predictions()
        looking.count_labels()
        looking.judge()
        report = looking.findings(database.current_time(project.workspace.state) if now is None else now)
        findings.save(state, report)
        _write_page(folder / PAGE_FILE, report, spec)
        looking.tell(report)
    return report


@dataclass(frozen=True)
class VersionFacts:
    """The files of a version that monitoring needs; all None if the registry does not have the version."""

    preparation: Preparation | None = None
    reference: Reference | None = None
    verdict: Verdict | None = None


class _MonitoringRun:
    """One monitoring run, with a method for each step."""

    def __init__(self, project: Project, spec: Spec, state: Path, store: MonitorStore, champion: str | None) -> None:
        self._project, self._spec, self._state, self._store = project, spec, state, store
        self._champion = champion
        self._facts: dict[str, VersionFacts] = {}
        self._filling: dict[str, tuple[OpenWindow, SortedHashSet]] = {}
        self.notes: list[str] = []

    def count_predictions(self) -> None:
        """Count the appends to the prediction log since the last run, `APPENDS_A_TRANSACTION` per transaction."""
        log = predictions.prediction_log(self._state)
        place, end = self._store.place("predictions"), log.cursor()
        if end < place:
            self.notes.append("the prediction log is shorter than before: all its rows are counted as new")
            place = 0
        while place < end:
            upto = min(end, place + APPENDS_A_TRANSACTION)
            versions = _versions(log.scan(place, upto, ["version"]))
            with self._store.transaction():
                for table in log.scan(place, upto, self._columns(versions)):
                    for version in versions:
                        self._count(version, table.filter(pc.equal(table.column("version"), version)))
                self._keep(versions)
                self._store.set_place("predictions", upto)
            place = upto

    def count_labels(self) -> None:
        """Join the labels that came since the last run to their predictions; labels without a prediction wait.

        A label that was withdrawn before it was counted is never counted; a counted label stays counted.
        """
        log = predictions.label_store(self._state)
        place, end = self._store.place("labels"), log.cursor()
        if end < place:
            place = 0
        with self._store.transaction():
            gone = _withdrawn(log, place, end)
            self._store.no_longer_wait(gone)
            if self._store.num_waiting():
                keys, texts = self._store.waiting()
                self._store.no_longer_wait(keys[self._give(keys, pa.chunked_array([texts], pa.string()))])
            for rows in log.scan(place, end, ["id", predictions.LABEL], batch=1 << 18):
                is_gone = pa.array(np.isin(keys_of(rows.column("id")), gone))
                table = rows.filter(pc.and_not(rows.column(predictions.LABEL).is_valid(), is_gone))
                keys, labels = keys_of(table.column("id")), table.column(predictions.LABEL)
                has_prediction = self._give(keys, labels)
                # Only a sample of the predictions is stored: a label outside of the sample need not wait.
                waits = ~has_prediction & sampled(keys, self._spec.monitor.window)
                self._store.wait(keys[waits], labels.filter(pa.array(waits)).to_pylist())
            self._store.set_place("labels", end)

    def judge(self) -> None:
        """Assess each window that changed since its last assessment."""
        with self._store.transaction():
            self._store.settle(self._judged_by())
            for version in self._store.versions():
                changed = self._store.changed(version)
                if not changed:
                    continue
                past = {report.id: report for report in self._store.reports(version)}
                watched = self._watched(version)
                if watched is None:
                    continue
                for first in changed:
                    window = self._store.window(version, first)
                    before = [report for report in past.values() if _first(report) < first]
                    report = assess(_predicted(window, watched.metric), watched, before)
                    past[report.id] = report
                    self._store.save_report(version, first, report)
                # Late labels of a window also count in the pools of those after it.
                ordered = sorted(past.values(), key=_first)
                for place, report in enumerate(ordered):
                    again = with_decay(report, watched, ordered[:place])
                    if again != report:
                        self._store.save_report(version, _first(report), again)

    def findings(self, moment: float) -> MonitoringReport:
        """Sum up all windows in the monitoring report."""
        reports = {version: self._store.reports(version) for version in self._store.versions()}
        windows_of_others = [window for version in reports if version != self._champion for window in reports[version]]
        windows = [*windows_of_others[-SHOWN_OF_OTHERS:], *reports.get(self._champion or "", [])]
        watched = self._watched(self._champion) if self._champion else None
        return sum_up(
            self._spec.name,
            moment,
            windows,
            watched,
            num_predictions=self._store.num_predictions(),
            num_labels=self._store.num_forgotten_labels()
            + sum(window.num_labels for windows_of_version in reports.values() for window in windows_of_version),
            num_unknown_labels=self._store.num_waiting(),
            notes=self.notes,
        )

    def tell(self, findings: MonitoringReport) -> None:
        """Log the windows' metrics in MLflow and send the signals to Prefect; failed metrics are retried next run."""
        for signal in signals(findings, self._spec.monitor):
            if not self._store.was_sent(signal.id):
                events.send(self._project.workspace, events.of_signal(self._spec.name, signal))
                self._store.set_sent(signal.id)
        for version in self._store.versions():
            self._log_metrics(version, findings)

    def _log_metrics(self, version: str, findings: MonitoringReport) -> None:
        batches: dict[int, tuple[float, dict[str, float]]] = {}
        texts = {}
        for first, window, text_before in self._store.unlogged(version):
            metrics = metrics_of(window, findings.metric or "metric")
            text = key_of(metrics)
            if text != text_before:
                batches[first // max(1, window.num_predictions)] = window.end, metrics
                texts[first] = text
        if not batches or self._facts_of(version).preparation is None:
            return
        try:
            delivery.log_version_metrics(self._spec.name, version, batches)
        except StoreError as error:
            self.notes.append(f"MLflow gets these metrics at the next monitoring run: {error}")
            return
        with self._store.transaction():
            for first, text in texts.items():
                self._store.set_logged(version, first, text)

    def _count(self, version: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if version not in self._filling:
            size = self._spec.monitor.window
            self._filling[version] = self._store.last_window(version, size), self._store.seen(version)
        last, seen = self._filling[version]
        for window in fill(last, rows, seen, self._spec.monitor.window, self._rules(version)):
            if window is not last:
                self._store.save(version, last)
            last = window
        self._filling[version] = last, seen

    def _keep(self, versions: Sequence[str]) -> None:
        for version in versions:
            self._store.save(version, self._filling.pop(version)[0])
            self._store.forget(version)

    def _give(self, keys: Keys, labels: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Join labels to their predictions; return a mask of the labels that have a prediction."""
        has_prediction = np.zeros(len(keys), dtype=bool)
        values: dict[str, NDArray[np.float64]] = {}
        strange = 0
        for version, first, examples in self._store.with_examples():
            if version not in values:
                preparation = self._facts_of(version).preparation
                values[version] = label_values(labels, preparation.target if preparation else None)
            labelled, is_present = examples.with_labels(keys, values[version])
            if is_present.any():
                self._store.save_examples(version, first, labelled)
                strange += int(np.isnan(values[version][is_present].reshape(is_present.sum(), -1)).any(axis=1).sum())
            has_prediction |= is_present
        if strange:
            self.notes.append(f"{strange} of the new labels are no class or number of the model: they do not count")
        return has_prediction

    def _columns(self, versions: Sequence[str]) -> list[str]:
        references = [self._facts_of(version).reference for version in versions]
        inputs = (
            predictions.INPUT + column.name for reference in references if reference for column in reference.columns
        )
        return list(dict.fromkeys(["id", "at", "version", "score", "scores", *inputs]))

    def _rules(self, version: str) -> WindowingRules:
        facts = self._facts_of(version)
        return WindowingRules(
            facts.preparation.task if facts.preparation else None, facts.reference, self._bounds(facts)
        )

    def _bounds(self, facts: VersionFacts) -> Bounds | None:
        reference = facts.reference
        return bounds_of(reference.columns, self._spec.data, self._spec.monitor.seasonal) if reference else None

    def _watched(self, version: str) -> AssessmentRules | None:
        facts = self._facts_of(version)
        preparation = facts.preparation
        if preparation is None:
            return None
        metric = metric_of(self._spec.goal, preparation, self._project.folder)
        metric = metric.at(preparation.class_head.decision)
        is_sampled = self._spec.monitor.weights == "sampling"
        promoted = promised(facts.verdict, metric, rows_alike=not is_sampled) if facts.verdict else None
        confidence = facts.verdict.rules.confidence if facts.verdict else 0.95
        bounds = self._bounds(facts)
        return AssessmentRules(
            version=version,
            monitor=self._spec.monitor,
            metric=metric,
            reference=facts.reference,
            promoted=promoted,
            bounds=bounds,
            promoted_confidence=confidence,
            outputs=preparation.outputs,
            promoted_horizons=horizons_promised(facts.verdict, metric.name) if facts.verdict else {},
            num_dependent=facts.verdict.num_dependent if facts.verdict else None,
            shows_values=self._spec.data.show_rows,
        )

    def _facts_of(self, version: str) -> VersionFacts:
        if version not in self._facts:
            facts = _facts(self._project.workspace, self._spec.name, version)
            if facts.reference is not None:
                reference = facts.reference.as_monitored(self._spec.monitor, self._spec.serve.log.redact)
                facts = replace(facts, reference=reference)
            self._facts[version] = facts
            if facts.preparation is None:
                self.notes.append(f"version {version} is not in the registry: its predictions are counted, not judged")
            elif facts.reference is None:
                self.notes.append(f"version {version} has no monitoring reference: it is monitored by its labels only")
            positive = facts.preparation.target.positive if facts.preparation is not None else ""
            if positive and self._spec.goal.positive not in (None, positive):
                self.notes.append(f"version {version} has {positive!r} as its positive class, and so have its figures")
            if facts.preparation is not None and (reason := refusal(facts.preparation.task, "monitoring")):
                self.notes.append(f"version {version} {reason}")
        return self._facts[version]

    def _judged_by(self) -> str:
        hidden = [] if self._spec.data.show_rows else ["data.show_rows"]
        return canonical([self._spec.monitor.model_dump(), self._spec.goal.model_dump(), *hidden])


def _facts(workspace: Workspace, model: str, version: str) -> VersionFacts:
    """Return the facts of a version, from the cache if it holds them, even if the registry lost the version since."""
    names = (PREPARATION_FILE, REFERENCE_FILE, VERDICT_FILE)
    try:
        folder = numbered_copy(workspace, model, version, names).folder
    except UsageError:
        return VersionFacts()
    verdict = folder / VERDICT_FILE
    return VersionFacts(
        Preparation.load(folder),
        Reference.load(folder),
        Verdict.model_validate_json(verdict.read_text()) if verdict.exists() else None,
    )


def promised(verdict: Verdict, metric: Metric, *, rows_alike: bool = True) -> Estimate | None:
    """Return the test metric that a version was promoted with; without interval if the goal has changed since.

    Served rows have no weights, so they count alike, and with `rows_alike` the test rows do too. None if those of the
    verdict had weights and the goal has changed since: it has no such value of another metric.

    A verdict from before exact intervals has none of any width for a metric at its bound: it gets that of all examples.
    """
    estimate = verdict.promise(rows_alike=rows_alike)
    if verdict.metric != metric.name and rows_alike and verdict.unweighted is not None:
        return None
    if verdict.metric != metric.name:
        value = verdict.metrics.get(metric.name, {}).get("challenger")
        return None if value is None else Estimate(value=value)
    if metric.range is None or estimate.value is None or estimate.low != estimate.high or estimate.low is None:
        return estimate
    num_units = verdict.num_clusters or verdict.num_samples
    low, high = metric.range.interval(estimate.value, num_units, verdict.rules.confidence)
    return Estimate(value=estimate.value, low=low, high=high)


def horizons_promised(verdict: Verdict, metric: str) -> dict[str, Estimate]:
    """Return the test metric at each of several horizons; nothing if the goal has changed since."""
    return verdict.horizons if verdict.metric == metric else {}


def metrics_of(window: WindowReport, metric: str) -> dict[str, float]:
    """Return the metrics of a window for MLflow; each name begins with `monitor_`."""
    name = "".join(character if character.isalnum() else "_" for character in metric)
    realised = window.realised
    metrics: dict[str, float | None] = {
        "monitor_predictions": window.num_predictions,
        "monitor_labels": window.num_labels,
        f"monitor_{name}": realised.value if realised else None,
        f"monitor_{name}_low": realised.low if realised else None,
        f"monitor_{name}_high": realised.high if realised else None,
        f"monitor_{name}_estimated": window.estimated,
        "monitor_breaches": len(window.breaches),
        "monitor_drifted_features": sum(drift.level != "none" for drift in window.features),
        **{f"monitor_psi_{drift.name}": drift.psi for drift in window.predictions},
        **{f"monitor_{name}_{horizon.name}": horizon.realised.value for horizon in window.horizons},
    }
    return {key: float(value) for key, value in metrics.items() if value is not None}


def _predicted(window: OpenWindow, metric: Metric) -> WindowPredictions:
    examples = window.examples
    is_labelled = examples.labelled
    target = examples.label[is_labelled]
    share = len(examples.keys) / max(1, window.num_rows)
    return WindowPredictions(
        first=window.first,
        begin=window.begin,
        end=window.end,
        tally=window.tally,
        whole=window.is_whole,
        num_labels=round(int(is_labelled.sum()) / share) if share else 0,
        target=target.astype(TARGET_DTYPES[metric.tasks[0]]),
        prediction=examples.prediction[is_labelled],
        scores=examples.prediction,
    )


def _first(window: WindowReport) -> int:
    """Return the number of the version's predictions before the window."""
    return int(window.id.rpartition("/")[2])


def _withdrawn(log: DeltaLog, since: int, upto: int) -> Keys:
    """Return the keys of ids whose label was withdrawn between the two cursors and not added again."""
    tables = log.scan(since, upto, ["id", predictions.LABEL], batch=1 << 18)
    columns = [table.column("id").filter(table.column(predictions.LABEL).is_null()) for table in tables]
    ids = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    if len(ids):
        ids = ids.filter(predictions.latest_labels(log, ids, upto).column(predictions.LABEL).is_null())
    return keys_of(ids)


def _versions(tables: Iterator[pa.Table]) -> list[str]:
    versions: dict[str, None] = {}
    for table in tables:
        versions.update(dict.fromkeys(pc.unique(table.column("version")).drop_null().to_pylist()))
    return list(versions)


def _write_page(path: Path, findings: MonitoringReport, spec: Spec) -> None:
    from models.report.monitoring import render_monitoring

    write_text(path, render_monitoring(findings, spec.monitor))
