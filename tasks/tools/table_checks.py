"""The checks of a step's table, from its file and with plain results, so that another process can make them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.preparation import ROWS_FILE, Preparation
from models.project_spec.reserved_columns import ROW_COLUMN
from models.sources.mapped import mapped_table
from models.validation.expectations import ExpectationCheck, reference
from models.validation.single_predictors import single_predictors
from tasks.tools.expectations import ValidationOutcome, run_checks


class PreparedOutcome(NamedTuple):
    """The outcome of the checks of prepared rows; of rows that pass also what later steps and loops compare.

    Attributes:
        validation: The outcome of the checks.
        single_predictors: The scores of columns that alone predict the target almost perfectly.
        reference: The distribution of the columns.
    """

    validation: ValidationOutcome
    single_predictors: dict[str, float]
    reference: dict[str, Any]


def source_rows(raw: Path, labelled: np.ndarray) -> pa.Table:
    """Return the source's rows of a raw table: all but the labelled predictions, which are the last."""
    table = mapped_table(raw)
    return table.slice(0, table.num_rows - len(labelled))


def check_raw(
    raw: Path, labelled: np.ndarray, checks: Sequence[ExpectationCheck], project: str, base: Path, folder: Path
) -> ValidationOutcome:
    """Return the outcome of the checks of the source's rows.

    Args:
        raw: The raw table.
        labelled: The row numbers of labelled predictions in it, int64 (labelled predictions,).
        checks: The checks.
        project: The project's name.
        base: The folder of the spec.
        folder: Where large arrays lie.

    Raises:
        UsageError: An expectation does not exist, or does not accept its arguments.
        UserCodeError: The file of a team's own expectation raised while it was imported.
    """
    with scratch.arrays_in(folder):
        return run_checks(source_rows(raw, labelled), checks, project, f"{project}/raw", None, base, raw)


def check_prepared(
    prepared: Path, labelled: np.ndarray, checks: Sequence[ExpectationCheck], project: str, base: Path, folder: Path
) -> PreparedOutcome:
    """Return the outcome of the checks of prepared rows: for labelled predictions the spec's rejecting ones only warn.

    Args:
        prepared: The folder of the prepared rows; the others are those of `check_raw`.
        labelled: The row numbers of labelled predictions in the raw table.
        checks: The checks.
        project: The project's name.
        base: The folder of the spec.
        folder: Where large arrays lie.

    Raises:
        UsageError: An expectation does not exist, or does not accept its arguments.
        UserCodeError: The file of a team's own expectation raised while it was imported.
    """
    with scratch.arrays_in(folder):
        rows, spared = mapped_table(prepared / ROWS_FILE), None
        is_labelled = pc.is_in(rows.column(ROW_COLUMN), value_set=pa.array(labelled)).to_numpy()
        if is_labelled.any():
            spared = is_labelled
            strict = [check for check in checks if check.origin == "spec" and check.severity == "reject"]
            checks = [*checks, *(check.model_copy(update={"severity": "warn"}) for check in strict)]
        outcome = run_checks(rows, checks, project, f"{project}/prepared", spared, base, prepared / ROWS_FILE)
        if not outcome.report["success"]:
            return PreparedOutcome(outcome, {}, {})
        preparation = Preparation.load(prepared)
        return PreparedOutcome(
            outcome, single_predictors(rows, preparation), reference(rows, preparation.column_inputs)
        )
