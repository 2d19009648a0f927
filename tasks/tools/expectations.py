"""Runs checks with Great Expectations and returns the results as plain data.

Only the columns that checks name are passed to the engine, a part of the rows at a time (`expectation_parts.py`), and
the answers are added up. A check that the engine cannot evaluate is an error, never bad data.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from models.data.header import no_such_column
from models.errors import UsageError, did_you_mean
from models.project_spec import references
from models.project_spec.reserved_columns import FAILED_COLUMN, POSITION_COLUMN
from models.sources.whole_numbers import as_frame
from models.validation.expectation_arguments import QUERY, columns_of
from models.validation.expectations import ExpectationCheck
from tasks.host import memory
from tasks.tools.expectation_parts import FRAME_BYTES, Part, is_of_count, parts_of, refuse_too_large, sizes_of
from tasks.tools.row_query import unexpected_rows

NUM_EXAMPLES = 10
_COMPARED = ("min_value", "max_value", "value_set")
_FORMAT = {
    "result_format": "COMPLETE",
    "partial_unexpected_count": NUM_EXAMPLES,
    "return_unexpected_index_query": False,
}


@dataclass(frozen=True)
class ValidationOutcome:
    """A report, and the failing rows of each failed check by its position in `report["results"]`."""

    report: dict[str, Any]
    failing_rows: dict[int, np.ndarray] = field(default_factory=dict)

    def quarantine(self, table: pa.Table) -> pa.Table:
        """Return the rows that failed a rejecting check, with their positions and failed checks."""
        reasons: dict[int, list[str]] = {}
        for position, failed in self.failing_rows.items():
            result = self.report["results"][position]
            if result["severity"] == "reject":
                for row in failed.tolist():
                    reasons.setdefault(row, []).append(f"{result['expectation']}({result['column'] or ''})")
        rows = sorted(reasons)
        bad = table.take(pa.array(rows, pa.int64()))
        bad = bad.append_column(POSITION_COLUMN, pa.array(rows, pa.int64()))
        return bad.append_column(FAILED_COLUMN, pa.array(["; ".join(reasons[row]) for row in rows], pa.string()))


def run_checks(
    table: pa.Table,
    checks: Sequence[ExpectationCheck],
    project: str = "",
    dataset: str = "",
    spared: np.ndarray | None = None,
    base: Path = Path(),
    stored: Path | None = None,
) -> ValidationOutcome:
    """Run checks over a table.

    Args:
        table: The table to check.
        checks: The checks, in the order of the report.
        project: The project's name in the report.
        dataset: The dataset's name in the report.
        spared: Rows that the spec's rejecting checks ignore, bool (rows,); default: none.
        base: The folder of the spec, from which references to a team's own expectations start.
        stored: The Parquet file whose first rows are the table, if it is large.

    The report has: project, dataset, when (UTC), rows, columns, success (no rejecting check failed and no check had an
    error), status (`valid`, `warned`, `rejected` or `error`) and results. A result has: expectation, column, arguments,
    severity, origin, success, observed, unexpected_count, unexpected_percent, examples, error.

    Cost: linear; 24 checks of a million rows of 20 columns take 9 CPU-s, the import of Great Expectations
    (4 s) included.

    Raises:
        UsageError: An expectation does not exist, or does not accept its arguments.
        UserCodeError: The file of a team's own expectation raised while it was imported.
    """
    results, failing = _evaluate(table, checks, spared, base, stored)
    failed = [result for result in results if not result["success"] and not result["error"]]
    if any(result["error"] for result in results):
        status = "error"
    elif any(result["severity"] == "reject" for result in failed):
        status = "rejected"
    else:
        status = "warned" if failed else "valid"
    report = {
        "project": project,
        "dataset": dataset,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": table.num_rows,
        "columns": table.num_columns,
        "success": status in ("valid", "warned"),
        "status": status,
        "results": results,
    }
    return ValidationOutcome(report, failing)


def _evaluate(
    table: pa.Table, checks: Sequence[ExpectationCheck], spared: np.ndarray | None, base: Path, stored: Path | None
) -> tuple[list[dict[str, Any]], dict[int, np.ndarray]]:
    """Return the results of the checks, and the failing rows of those that failed, by the check's position."""
    gx = library()
    results = [_blank(check, table.column_names) for check in checks]
    expectations = {
        position: _expectation(_with_times(check, table.schema), position, base)
        for position, check in enumerate(checks)
        if results[position]["observed"] is None
    }
    sizes = sizes_of(table)
    is_large = sum(sizes.values()) > FRAME_BYTES
    refuse_too_large(table, checks, list(expectations), sizes)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    answers: dict[int, list[_Answer]] = {}
    for part in parts_of(table, checks, list(expectations), spared, sizes, stored):
        chosen = {position: expectations[position] for position in part.positions}
        for position, answer in _answers(context, part, chosen, table, checks).items():
            answers.setdefault(position, []).append(answer)
        if is_large:  # the engine's objects refer to each other: each frame stays until Python looks
            memory.release(always=True)
    failing: dict[int, np.ndarray] = {}
    for position, parts in sorted(answers.items()):
        answer = parts[0] if len(parts) == 1 else _joined(parts, checks[position].arguments.get("mostly", 1.0))
        results[position].update(answer.result)
        if answer.result["unexpected_count"] and not answer.result["success"] and not answer.result["error"]:
            failing[position] = answer.rows
    return results, failing


def _answers(
    context: Any, part: Part, expectations: dict[int, Any], table: pa.Table, checks: Sequence[ExpectationCheck]
) -> dict[int, _Answer]:
    """Return the answers for a part of the table, by the check's position: of the engine, or of a query of rows."""
    if is_of_count(checks[part.positions[0]]):
        return {position: _of_count(checks[position].arguments, len(part.rows)) for position in part.positions}
    if checks[part.positions[0]].expectation == QUERY:
        return {place: _of_query(expectations[place].unexpected_rows_query, part) for place in part.positions}
    ran = _run(context, _frame(part.table, table, checks), expectations)
    return {position: _Answer.of(result, part.rows) for position, result in ran.items()}


def _of_count(arguments: dict[str, Any], num_rows: int) -> _Answer:
    """Return the answer for the number of rows; the engine would take a frame of all of them and hash it."""
    low, high = (arguments.get(name, arguments.get("value")) for name in ("min_value", "max_value"))
    is_below = low is not None and (num_rows < low or (arguments.get("strict_min") and num_rows == low))
    is_above = high is not None and (num_rows > high or (arguments.get("strict_max") and num_rows == high))
    result: dict[str, Any] = {"unexpected_count": None, "unexpected_percent": None, "examples": [], "error": None}
    return _Answer({**result, "success": not (is_below or is_above), "observed": num_rows}, np.zeros(0, np.int64), 0)


def _of_query(query: str, part: Part) -> _Answer:
    """Return the answer of a query that expects no rows; Great Expectations asks databases alone."""
    result: dict[str, Any] = {"unexpected_percent": None, "examples": [], "error": None}
    try:
        unexpected = unexpected_rows(part.table, query, NUM_EXAMPLES)
    except UsageError as error:
        failed = {"success": False, "observed": None, "unexpected_count": None, "error": str(error)}
        return _Answer({**result, **failed}, part.rows[:0], 0)
    count = unexpected.num_rows
    result["examples"] = json.loads(json.dumps(unexpected.examples, default=_plain))
    result |= {"success": not count, "observed": count, "unexpected_count": count}
    return _Answer(result, part.rows[unexpected.positions], part.table.num_rows)


def _frame(part: pa.Table, table: pa.Table, checks: Sequence[ExpectationCheck]) -> Any:
    return as_frame(_with_moments(part, checks), table)


class _Answer(NamedTuple):
    """The answer of the engine: the fields of a result, the numbers of failing rows, and how many rows were checked."""

    result: dict[str, Any]
    rows: np.ndarray
    num_checked: int

    @classmethod
    def of(cls, result_of_engine: Any, rows: np.ndarray) -> _Answer:
        """Return the answer for a part of the table, whose rows have these numbers."""
        if isinstance(result_of_engine, Exception):
            error = f"the engine raised {type(result_of_engine).__name__}: {result_of_engine}"
            return cls({"success": False, "error": error, "unexpected_count": None}, rows[:0], 0)
        full = dict(result_of_engine.result)
        failing = np.asarray(full.pop("unexpected_index_list", None) or [], dtype=np.int64)
        examples = list(full.get("partial_unexpected_list") or [])[:NUM_EXAMPLES]
        plain = {name: full.get(name) for name in ("observed_value", "unexpected_count", "unexpected_percent")}
        plain = json.loads(json.dumps({**plain, "examples": examples}, default=_plain))
        observed = plain.pop("observed_value")
        observed = observed if "observed_value" in full else plain["unexpected_percent"]
        plain |= {"success": bool(result_of_engine.success), "observed": observed}
        plain["error"] = _engine_error(result_of_engine.exception_info or {})
        return cls(plain, rows[failing], (full.get("element_count") or 0) - (full.get("missing_count") or 0))


def _joined(answers: list[_Answer], mostly: float) -> _Answer:
    """Return the answer of a check of single rows for the whole table, from those of its slices."""
    for answer in answers:
        if answer.result["error"]:
            return answer
    num_checked, num_failed = (sum(counts) for counts in zip(*((a.num_checked, a.result["unexpected_count"] or 0)
                                                               for a in answers), strict=True))  # fmt: skip
    percent = num_failed / num_checked * 100 if num_checked else None
    examples = [
        (row, example)
        for answer in answers
        for row, example in zip(answer.rows.tolist(), answer.result["examples"], strict=False)
    ]
    result = {
        "success": not num_checked or (num_checked - num_failed) / num_checked >= mostly,
        "observed": percent,
        "unexpected_count": num_failed,
        "unexpected_percent": percent,
        "examples": [example for _, example in sorted(examples, key=lambda pair: pair[0])[:NUM_EXAMPLES]],
        "error": None,
    }
    return _Answer(result, np.sort(np.concatenate([answer.rows for answer in answers])), num_checked)


def library() -> Any:
    """Import Great Expectations without its deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations as gx
        import great_expectations.expectations
    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    return gx


def _run(context: Any, frame: Any, expectations: dict[int, Any]) -> dict[int, Any]:
    """Return the engine's result of each expectation by its position; an exception for one that breaks the engine."""
    gx = library()
    asset = context.data_sources.add_pandas("memory").add_dataframe_asset("table")
    definition = asset.add_batch_definition_whole_dataframe("whole")
    batch = definition.get_batch(batch_parameters={"dataframe": frame})
    suite = gx.ExpectationSuite(name="suite", expectations=list(expectations.values()))
    try:
        ran = batch.validate(suite, result_format=_FORMAT).results
        return {result.expectation_config.meta["position"]: result for result in ran}
    except Exception:  # noqa: BLE001 - some expectations crash the engine; the separate runs below find them
        return {position: _run_alone(batch, expectation) for position, expectation in expectations.items()}
    finally:
        # Great Expectations keeps the context after this call, and its data source would keep the frame in memory.
        context.data_sources.delete("memory")


def _run_alone(batch: Any, expectation: Any) -> Any:
    try:
        return batch.validate(expectation, result_format=_FORMAT)
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is that check's error
        return error


def _engine_error(info: dict[str, Any]) -> str | None:
    """Return the engine's error or None; exceptions come flat, or keyed by the metric that raised."""
    entries = [info] if "raised_exception" in info else list(info.values())
    for part in entries:
        if isinstance(part, dict) and part.get("raised_exception"):
            return f"the engine could not evaluate it: {part.get('exception_message')}"
    return None


def _blank(check: ExpectationCheck, names: list[str]) -> dict[str, Any]:
    """Return an empty result; `observed` names a missing column, which the engine would report as an error."""
    columns = [*columns_of(check.expectation, check.arguments)]
    absent = [name for name in columns if name not in names]
    observed = no_such_column(absent[0], names) if absent else None
    return {
        "expectation": check.expectation,
        "column": ", ".join(columns) or None,
        "arguments": check.arguments,
        "severity": check.severity,
        "origin": check.origin,
        "success": False,
        "observed": observed,
        "unexpected_count": None,
        "unexpected_percent": None,
        "examples": [],
        "error": None,
    }


def _with_moments(table: pa.Table, checks: Sequence[ExpectationCheck]) -> pa.Table:
    """Return the table with times that are compared as times in UTC without a zone, and dates as such a time.

    The engine compares no date with a time and no time that has a zone with one of a set.
    """
    for name in {check.arguments.get("column") for check in checks if set(_COMPARED) & set(check.arguments)}:
        if name in table.column_names and _is_moment(table.schema.field(name).type):
            moments = table.column(name).cast(pa.timestamp("us"), safe=False)
            table = table.set_column(table.column_names.index(name), name, moments)
    return table


def _with_times(check: ExpectationCheck, schema: pa.Schema) -> ExpectationCheck:
    """Return the check with ISO dates and times as times in UTC, if its column holds times."""
    column = check.arguments.get("column")
    if column not in schema.names or not _is_moment(schema.field(column).type):
        return check
    typed = {
        name: [_time(element) for element in value] if isinstance(value, list) else _time(value)
        for name, value in check.arguments.items()
        if name in _COMPARED
    }
    return check.model_copy(update={"arguments": {**check.arguments, **typed}})


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _time(value: Any) -> Any:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _expectation(check: ExpectationCheck, position: int, base: Path) -> Any:
    severity = "critical" if check.severity == "reject" else "warning"
    try:
        return _class_of(check.expectation, base)(**check.arguments, severity=severity, meta={"position": position})
    except (ValueError, TypeError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:]) or str(error)
        raise UsageError(
            f"data.expectations: {check.expectation} with {check.arguments}: {reason}: correct the arguments"
        ) from error


def _class_of(name: str, base: Path) -> Any:
    """Return the class of an expectation: of the library by its name in snake case, or a team's by its reference."""
    catalogue = library().expectations
    if references.is_own_code(name):
        definition = references.resolve(name, base)
        if not (isinstance(definition, type) and issubclass(definition, catalogue.Expectation)):
            expected = "a subclass of an expectation of great_expectations.expectations"
            raise UsageError(f"data.expectations: {name}: got {definition!r}, expected {expected}: inherit from one")
        return definition
    classes = {snake_name(label): label for label in dir(catalogue) if label.startswith(("Expect", "UnexpectedRows"))}
    if name not in classes:
        cure = did_you_mean(name, classes, "see the gallery of Great Expectations for the names")
        raise UsageError(f"data.expectations: no expectation {name!r}: {cure}")
    return getattr(catalogue, classes[name])


def type_of(name: str) -> str:
    """Return Great Expectations' own name of the type of a check; of a team's class by its reference too."""
    label = name.rpartition(":")[2] if references.is_own_code(name) else ""
    is_named_so = name == QUERY or (label and not label.startswith("Expect"))
    return f"{'' if is_named_so else 'expect_'}{snake_name(label) if label else name}"


def snake_name(name: str) -> str:
    """Return the name of a class of an expectation as a spec writes it."""
    letters = [f"_{letter.lower()}" if letter.isupper() else letter for letter in name.removeprefix("Expect")]
    return "".join(letters).removeprefix("_").replace("_k_l_", "_kl_")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
