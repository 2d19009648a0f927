"""Validate: checks the raw table and the prepared rows against the spec's expectations before any training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.data.preparation import ROWS_FILE, Preparation
from models.errors import DataError, GateRefused, StoreError, first_of
from models.feedback.columns import FEEDBACK_FILE
from models.files import write_json, write_text
from models.pipeline.records import StepRecord
from models.readable import as_shown
from models.sources.mapped import mapped_table
from models.sources.read import read_table, write_table
from models.validation.data_profile import without_values
from models.validation.expectations import prepared_checks, raw_checks
from tasks.loop.champion import champion_stays
from tasks.loop.loop import Inputs, Loop, Reporter, StepResult
from tasks.loop.loop_pages import keep_page
from tasks.state import shared_files
from tasks.state.outbox import LOOP_RUN
from tasks.tools.expectations import ValidationOutcome
from tasks.tools.table_checks import PreparedOutcome, source_rows

REPORT_FILE = "report.json"
REFERENCE_FILE = "reference.json"
FAILING_FILE = "failing_rows.parquet"
SHOWN = 3


def validate_raw(loop: Loop) -> tuple[StepRecord, bool]:
    """Check the raw table: the source's own rows.

    Raises:
        GateRefused: A rejecting expectation failed: nothing is trained, the champion stays, the rows are in quarantine.
        DataError: Great Expectations could not evaluate a check: an outage is not bad data.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        raw, labelled = inputs["ingest"].file("raw.parquet"), _labelled(inputs)
        # Labelled predictions were checked row by row at ingest: rows from callers must not stop the training.
        outcome: ValidationOutcome = loop.apart(
            raw,
            "tasks.tools.table_checks:check_raw",
            raw=raw,
            labelled=labelled,
            checks=raw_checks(loop.spec.data),
            project=loop.spec.name,
            base=loop.project.folder,
            folder=folder,
        )
        return _publish_outcome(loop, folder, "raw", outcome, lambda: source_rows(raw, labelled))

    return loop.carry_out("validate-raw", act)


def validate_prepared(loop: Loop) -> tuple[StepRecord, bool]:
    """Check the prepared rows; warn of columns that leak the target, and of differences from the champion's rows.

    The spec's rejecting expectations apply to the source's rows; for labelled predictions they only warn.

    Raises:
        GateRefused: A rejecting expectation failed.
        DataError: Great Expectations could not evaluate a check.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        return _act(loop, inputs, folder)

    return loop.carry_out("validate-prepared", act)


def _act(loop: Loop, inputs: Inputs, folder: Path) -> StepResult:
    prepared, preparation = inputs["prepare"], Preparation.load(inputs["prepare"].folder)
    rows, seasonal = prepared.file(ROWS_FILE), loop.spec.monitor.seasonal
    checks = prepared_checks(loop.spec.data, preparation, _champions_reference(loop.report, inputs), seasonal)
    checked: PreparedOutcome = loop.apart(
        rows,
        "tasks.tools.table_checks:check_prepared",
        prepared=prepared.folder,
        labelled=_labelled(inputs),
        checks=checks,
        project=loop.spec.name,
        base=loop.project.folder,
        folder=folder,
    )
    outcome = _publish_outcome(loop, folder, "prepared", checked.validation, lambda: mapped_table(rows))
    outcome.result["single_predictors"] = checked.single_predictors
    for name, score in outcome.result["single_predictors"].items():
        loop.report.note(
            f"validate-prepared: column {name!r} alone predicts the target almost perfectly ({score:.4g} of 1 on "
            "validation rows): is it known before the target is? If not, put it into data.features.drop (warning)"
        )
    write_json(folder / REFERENCE_FILE, checked.reference)
    outcome.outputs.append(folder / REFERENCE_FILE)
    return outcome


def _labelled(inputs: Inputs) -> np.ndarray:
    """Return the row numbers of labelled predictions in the raw table, int64 (labelled predictions,): the last rows."""
    files = inputs["ingest"].files
    if FEEDBACK_FILE not in files:
        return np.zeros(0, np.int64)
    rows: np.ndarray = read_table(files[FEEDBACK_FILE], ["row"]).column(0).to_numpy()
    return rows


def _champions_reference(report: Reporter, inputs: Inputs) -> dict[str, Any] | None:
    """Return the champion's data distribution, or None; an unreachable registry only skips the comparison."""
    try:
        path: Path | None = inputs.external("reference")
    except StoreError as error:
        report.note(f"validate-prepared: the data is not compared with the champion's: {error}")
        return None
    return json.loads(path.read_text()) if path else None


def _publish_outcome(
    loop: Loop, folder: Path, stage: str, outcome: ValidationOutcome, table: Callable[[], pa.Table]
) -> StepResult:
    """Publish the outcome of the checks of a stage; refuse a table that is rejected, which `table` returns."""
    report = {**outcome.report, "stage": stage, "loop_id": loop.id}
    report["results"] = as_shown(report["results"], loop.spec.data.show_rows, without_values)
    html = _publish(loop, folder, stage, report)
    counts = {
        "expectations": len(report["results"]),
        "failed": sum(not result["success"] for result in report["results"]),
    }
    loop.outbox.metrics(LOOP_RUN, {f"validation_{stage}_{name}": value for name, value in counts.items()})
    loop.outbox.tags(LOOP_RUN, {f"loopline.validation_{stage}": report["status"]})
    if report["status"] in ("error", "rejected"):  # the page of a step that is done is kept when it is saved
        page = keep_page(loop.state, loop.id, html.stem, html, loop.epoch)
    if report["status"] == "error":
        raise DataError(f"{loop.spec.name}: the {stage} data could not be checked: {_failures(report)}; see {page}")
    if report["status"] == "rejected":
        quarantined = _quarantine(loop, stage, outcome, table())
        raise GateRefused(
            f"{loop.spec.name}: the {stage} data was rejected: {_failures(report)}. "
            f"{', '.join(filter(None, ('Nothing was trained', champion_stays(loop.workspace, loop.spec.name))))}; "
            f"the failing rows are in {quarantined}, the report is {page}{_cure(report)}"
        )
    if report["status"] == "warned":
        loop.report.note(f"validate-{stage}: {_failures(report)} (warning)")
    return StepResult([folder / REPORT_FILE], {"status": report["status"], **counts})


def _publish(loop: Loop, folder: Path, stage: str, report: dict[str, Any]) -> Path:
    """Write the report as data and as a page: into the step's folder, as the newest, into MLflow; return the page."""
    from models.report.validation import render_validation

    html = render_validation(report)
    page = folder / f"validation-{stage}.html"
    newest = loop.state / "reports" / page.name
    write_json(folder / REPORT_FILE, report)
    write_text(page, html)
    write_text(newest, html)
    shared_files.publish(loop.state, loop.epoch, newest)
    for path in (folder / REPORT_FILE, page):
        loop.outbox.artifact(LOOP_RUN, path, f"validation/{stage}")
    return page


def _quarantine(loop: Loop, stage: str, outcome: ValidationOutcome, table: pa.Table) -> Path:
    """Store the unchanged rejected table, and its failing rows with a reason each, for a person to inspect."""
    folder = loop.state / "quarantine" / loop.id / stage
    folder.mkdir(parents=True, exist_ok=True)
    write_table(table, folder / "table.parquet")
    write_table(outcome.quarantine(table), folder / FAILING_FILE)
    write_json(folder / REPORT_FILE, outcome.report)
    files = (folder / name for name in ("table.parquet", FAILING_FILE, REPORT_FILE))
    shared_files.publish(loop.state, loop.epoch, *files)
    return folder / FAILING_FILE


def _cure(report: dict[str, Any]) -> str:
    """Return advice if the failed check is Loopline's own check for missing targets, which the spec does not name."""
    failed = {(check["expectation"], check["origin"]) for check in report["results"] if not check["success"]}
    missing = ("column_values_to_not_be_null", "default") in failed
    return ". If many rows are meant to have no target, say `data.unlabelled: true`" if missing else ""


def _failures(report: dict[str, Any]) -> str:
    lines = []
    for result in report["results"]:
        if not result["success"]:
            where, count, observed = f" of {result['column']!r}", result["unexpected_count"], result["observed"]
            reason = result["error"] or (f"{count} rows unexpected" if count else f"observed {observed}")
            is_hidden = observed is None and not result["error"] and not count  # data.show_rows: false
            lines.append(
                f"{result['expectation']}{where * bool(result['column'])}{'' if is_hidden else f' ({reason})'}"
            )
    return first_of(lines, SHOWN)
