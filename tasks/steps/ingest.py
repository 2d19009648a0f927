"""Ingest: writes the source's rows and labelled predictions as one raw Parquet table, for DVC to version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.check import check_columns, check_schema, table_schema
from models.data.split import is_by_content
from models.errors import DataError
from models.feedback.columns import FEEDBACK_FILE, FEEDBACK_WORDS
from models.feedback.feedback import JoinedFeedback, with_feedback
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Data, Spec
from models.sources.own import ARRIVED
from models.sources.read import write_table
from models.sources.row_batches import concatenated
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.validation.alike_classes import alike_classes
from models.validation.expectations import query_checks, row_checks
from models.validation.mixed_columns import odd_cells
from models.validation.rounded_numbers import rounded_numbers
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.mlflow import registry_reader
from tasks.state import shared_files
from tasks.state.feedback import labelled_rows
from tasks.tools import expectations, sources


def ingest(loop: Loop) -> tuple[StepRecord, bool]:
    """Fetch and read the source; `data/raw/raw.parquet` is the step's output.

    Labelled predictions are appended as rows, unless `retrain.feedback` is off. `data/raw/feedback.parquet` then names
    these rows, their predictions, and who labelled them when. A labelled prediction that breaks an expectation of the
    spec is set aside, so that a caller's mistake does not stop the training.

    Raises:
        DataError: The source cannot be read, lacks the target, or a column changed its type since the last ingest.
        StoreError: A package cannot be fetched.
        UserCodeError: The project's own source function failed.
    """

    def act(inputs: Inputs, _: Path) -> StepResult:
        with scratch.arrays_in(loop.workspace.cache / "sources"):
            return _act(loop, inputs)

    return loop.carry_out("ingest", act)


def _act(loop: Loop, inputs: Inputs) -> StepResult:
    before = inputs.external("previous")
    source = Source(loop.spec.data.source, loop.project.folder)
    arrival = scheme_of(source.named).arrived(source)  # before reading: later arrivals are new next time
    table = sources.ingest(loop.spec, loop.project.folder, loop.workspace.cache / "sources", loop.report.note)
    if not loop.spec.data.features.make:
        check_columns(table, loop.spec.data)
    data = loop.spec.data
    for text in [*odd_cells(table, data), *rounded_numbers(table, data), *alike_classes(table, data)]:
        loop.report.note(text)
    schema = table_schema(table)
    if before is not None:
        _check_types(schema, before, loop.spec.data)
        for text in _divided_anew(loop.spec.data, schema, before):
            loop.report.note(text)
    loop.workspace.make_private(loop.project.data)
    loop.project.raw.parent.mkdir(exist_ok=True)
    table, summary, files = _with_feedback(loop, inputs, table)
    write_table(table, loop.project.raw)
    result = {"rows": table.num_rows, "schema": table_schema(table), "source": str(loop.spec.data.source)}
    arrived = {} if arrival is None else {ARRIVED: arrival}
    return StepResult([loop.project.raw, *files], {**result, **summary, **arrived})


def _with_feedback(loop: Loop, inputs: Inputs, table: pa.Table) -> tuple[pa.Table, dict[str, Any], list[Path]]:
    """Return the table with labelled predictions appended, their counts, and the file that names these rows."""
    origin = loop.project.raw.with_name(FEEDBACK_FILE)
    feedback = inputs.external("feedback")
    if feedback is None:
        origin.unlink(missing_ok=True)
        return table, {}, []
    labelled = concatenated(list(labelled_rows(loop.state, feedback)))
    fitting = labelled.filter(
        pc.is_in(labelled.column("version"), value_set=_of_this_target(loop.workspace.state, loop.spec, labelled))
    )
    num_other = labelled.num_rows - fitting.num_rows
    joined = with_feedback(table, fitting, loop.spec.data)
    rejected = _rejected(loop, joined)
    if rejected.any():  # join again: a rejected row must not turn a column of integers into floats
        broken = joined.origin.column("id").filter(pa.array(rejected)).combine_chunks()
        fitting = fitting.filter(pc.invert(pc.is_in(fitting.column("id"), value_set=broken)))
        joined = with_feedback(table, fitting, loop.spec.data)
    counts = {
        "joined": joined.origin.num_rows,
        "known": joined.known,
        "unfit": joined.unfit,
        "rejected": int(rejected.sum()),
        "other": num_other,
    }
    outcomes = ", ".join(f"{counts[name]:,} {text}" for name, text in FEEDBACK_WORDS.items() if counts[name])
    loop.report.note(f"ingest: of {labelled.num_rows:,} labelled predictions {outcomes}")
    if not joined.origin.num_rows:
        origin.unlink(missing_ok=True)
        return table, {"feedback": counts}, []
    write_table(joined.origin, origin)
    return joined.table, {"feedback": counts}, [origin]


def _rejected(loop: Loop, joined: JoinedFeedback) -> np.ndarray:
    """Return which labelled predictions break an expectation of the spec, bool (labelled prediction,); set them aside.

    A query sees the source's rows too, since it may compare rows; a team's own class sees these alone. An expectation
    that Great Expectations cannot evaluate rejects no row: an outage is not bad data.
    """
    num_before = joined.table.num_rows - joined.origin.num_rows
    rows = joined.table.slice(num_before)
    rejected = np.zeros(rows.num_rows, dtype=bool)
    checks, queries = row_checks(loop.spec.data), query_checks(loop.spec.data)
    if not rows.num_rows or not [*checks, *queries]:
        return rejected
    names = loop.spec.name, f"{loop.spec.name}/labelled predictions"
    outcome = expectations.run_checks(rows, checks, *names, base=loop.project.folder)
    if queries:
        of_all = expectations.run_checks(joined.table, queries, *names)
        outcome.report["results"] += of_all.report["results"]
        for position, failed in of_all.failing_rows.items():
            outcome.failing_rows[len(checks) + position] = failed[failed >= num_before] - num_before
    for result in outcome.report["results"]:
        if result["error"]:
            loop.report.note(
                f"ingest: the labelled predictions could not be checked by {result['expectation']} "
                f"({result['error']}): none is set aside for it"
            )
    for failed in outcome.failing_rows.values():
        rejected[failed] = True
    if rejected.any():
        place = loop.state / "quarantine" / loop.id / "feedback" / "failing_rows.parquet"
        rejected_rows = outcome.quarantine(rows).append_column(
            "id", joined.origin.column("id").filter(pa.array(rejected))
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        write_table(rejected_rows, place)
        shared_files.publish(loop.state, loop.epoch, place)
        loop.report.note(
            f"ingest: {rejected.sum():,} labelled predictions are set aside in {place}; "
            f"`loopline label {loop.spec.name} --forget ID` withdraws a label"
        )
    return rejected


def _of_this_target(root: Path, spec: Spec, labelled: pa.Table) -> pa.Array:
    """Return the versions that predict the spec's current target: labels of another target cannot be used."""
    fitting, name, target = [], spec.name, spec.data.target_name
    for version in pc.unique(labelled.column("version")).to_pylist():
        model_version = registry_reader.named(root, name, version) if version is not None else None
        if model_version is None or model_version.tags.get("loopline.target", target) == target:
            fitting.append(version)
    return pa.array(fitting, labelled.column("version").type)


def _divided_anew(data: Data, schema: list[dict[str, object]], before: StepRecord) -> Iterator[str]:
    """Yield a warning if rows are split differently: columns changed and rows have no key, or ids became text."""
    earlier, now = (
        [str(field["dtype"]) for field in fields if field["name"] == data.id]
        for fields in (before.result["schema"], schema)
    )
    if now == ["string"] and earlier and "string" not in earlier[0]:
        yield (
            f"ingest: the ids of {data.id!r} are text now, since a number would not hold each (00001 keeps its zeros): "
            "rows are divided into training and test anew, and the champion may have been trained on some of the new "
            "test rows"
        )
    changed = {str(field["name"]) for field in schema} ^ {str(field["name"]) for field in before.result["schema"]}
    if changed and is_by_content(data):
        yield (
            f"ingest: columns came or went ({', '.join(sorted(changed)[:5])}): rows are divided into training and test "
            "anew, and the champion may have been trained on some of the new test rows: name what a row is known by, "
            "`data.id: COLUMN`"
        )


def _check_types(schema: list[dict[str, object]], before: StepRecord, data: Data) -> None:
    try:
        check_schema(schema, before.result["schema"], data)
    except DataError as error:
        raise DataError(f"{error} (compared with the data of loop {before.loop_id})") from error
