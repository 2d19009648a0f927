"""Prepare: cleans the rows, assigns each to a split, and computes statistics of the training rows alone."""

from __future__ import annotations

from pathlib import Path

from models.data.preparation import PREPARATION_FILE, ROWS_FILE, TRANSFORM_FILE
from models.data.prepare import prepare as prepare_rows
from models.data.unlabelled import UNLABELLED_FILE
from models.identity.equal_rows import with_equal_rows
from models.identity.equal_share import EqualRows
from models.inference.names import refuse_taken_names
from models.inputs.types import collected_later
from models.judge.held_out import check_measurable
from models.ngrams.model import NGRAMS_FILE
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.readable import as_shown
from models.training.costs.whole_tables import check_raw
from models.validation.unseen_categories import unseen_categories
from tasks.loop.loop import Inputs, Loop, StepResult


def prepare(loop: Loop) -> tuple[StepRecord, bool]:
    """Make `data/prepared/` from the raw table.

    Raises:
        DataError: The data does not match the spec.
        UserCodeError: The spec's own feature function failed.
        UsageError: A column has the name of one of the served model's outputs, or the rows cannot fit as a whole.
        StoreError: The disk is full or the folder cannot be written.
    """

    def act(inputs: Inputs, _: Path) -> StepResult:
        project = loop.project
        loop.make_room(inputs["ingest"].file("raw.parquet"))  # else the validation just done would be in the peak
        check_raw(loop.spec, inputs["ingest"].file("raw.parquet"))
        rule = inputs.external("equal_rows")
        spec = with_equal_rows(loop.spec, rule)
        prepared = prepare_rows(inputs["ingest"].file("raw.parquet"), spec, project.folder, project.prepared)
        refuse_taken_names(prepared)  # the graph would refuse them too, but only after the training
        check_measurable(project.prepared, prepared, loop.spec.goal.metric)  # so would the verdict
        if prepared.equal_rows is not None and prepared.equal_rows.identified:
            loop.report.note(
                f"prepare: equal rows: {prepared.equal_rows.text}{_cure(loop.spec, prepared.equal_rows, rule)}"
            )
        for reason, count in prepared.dropped.items():
            loop.report.note(f"prepare: {count:,} rows left out: {reason}")
        for name in collected_later(prepared.left_out):
            loop.report.note(f"prepare: column {name!r} is left out until a training row has a value in it")
        for name, text in prepared.extremes.items():
            words = as_shown(text, loop.spec.data.show_rows, lambda _: "values lie far from all others")
            cure = "if such a value means `missing`, leave the cell empty in the source"
            loop.report.note(f"prepare: column {name!r}: {words}: {cure}")
        for text in unseen_categories(project.prepared, prepared):
            loop.report.note(text)
        if prepared.target.positive and loop.spec.goal.positive is None:
            loop.report.note(
                f"prepare: metric, costs and threshold are about class {prepared.target.positive!r}, the later of the "
                "two: goal.positive names the one that is meant"
            )
        result = {
            "rows": prepared.rows,
            "task": prepared.task,
            "left_out": prepared.left_out,
            "dropped": prepared.dropped,
            "equal_rows": prepared.equal_rows.model_dump() if prepared.equal_rows else None,
        }
        files = [project.prepared / name for name in (ROWS_FILE, PREPARATION_FILE)]
        further = [project.prepared / name for name in (UNLABELLED_FILE, NGRAMS_FILE, TRANSFORM_FILE)]
        return StepResult([*files, *(path for path in further if path.exists())], result)

    return loop.carry_out("prepare", act)


def _cure(spec: Spec, equal: EqualRows, rule: str | None) -> str:
    """Return why copies stand on both sides of the split, and what to do; empty if none do."""
    if not equal.num_in_training:
        return ""
    if rule is None:
        return f": a split by {spec.data.split.by} moves none of them: drop them in the source, or data.deduplicate"
    if rule == "apart" and spec.data.split.equal_rows is None:
        return ": they stay apart as they were for the champion: data.split.equal_rows: together moves them"
    return ""
