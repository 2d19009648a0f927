"""Data validation: the list of checks for one project; `tasks/tools/expectations.py` runs them.

A check is a Great Expectations check by its snake_case name, without `expect_`. Besides the spec's checks there are
default checks for every project, and checks that compare the data with the champion's data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from models import scratch
from models.data.check import least_rows
from models.data.preparation import Preparation
from models.frozen_model import FrozenModel
from models.identity.hashing import missing
from models.inputs.record import Form, InputRecord
from models.project_spec.blocks import Data
from models.project_spec.references import is_own_code
from models.project_spec.reserved_columns import ROW_COLUMN, SPLIT_COLUMN

TARGET_PRESENT = 0.9
MAX_DIVERGENCE = 0.1
MAX_NULLS_MORE = 0.05
LEAST_ROWS = 0.5
QUERY = "unexpected_rows_expectation"
"""The expectation that is a query in SQL."""
_NUM_BINS = 10
_MAX_VALUES = 50
_TAIL = 0.0005
_UNSEEN = 0.001


class ExpectationCheck(FrozenModel):
    """One check to run, with its origin and its severity."""

    expectation: str = Field(description="Snake case, such as `column_values_to_be_between`.")
    arguments: dict[str, Any] = Field(default_factory=dict)
    severity: Literal["reject", "warn"] = "reject"
    origin: Literal["default", "spec", "champion"] = "default"


def raw_checks(data: Data) -> list[ExpectationCheck]:
    """Return the checks of the raw table: row count, the columns that the spec names, the target, the spec's checks.

    90 % of the rows must have a target, unless the spec allows unlabelled rows (`data.unlabelled`).
    """
    needed = [*data.targets, data.split.column, *(data.features.columns or []), data.image and data.image.column]
    has_own_function = bool(data.features.make)
    return [
        ExpectationCheck(expectation="table_row_count_to_be_between", arguments={"min_value": least_rows(data)}),
        *(
            ExpectationCheck(expectation="column_to_exist", arguments={"column": column})
            for column in dict.fromkeys(needed)
            if column and not has_own_function
        ),
        *(
            []
            if has_own_function or data.unlabelled
            else [_present(name, TARGET_PRESENT, "reject", "default") for name in data.targets]
        ),
        *_of_spec(data, "raw"),
    ]


def row_checks(data: Data) -> list[ExpectationCheck]:
    """Return the spec's rejecting checks of raw data that check each row separately, with any share allowed to fail.

    A team's own class may be one: it names the rows that fail, or none.
    """
    prefixes = ("column_values_", "column_pair_values_", "column_value_", "multicolumn_", "select_column_values_")
    return [
        check
        for check in _of_spec(data, "raw")
        if check.severity == "reject" and (check.expectation.startswith(prefixes) or is_own_code(check.expectation))
    ]


def query_checks(data: Data) -> list[ExpectationCheck]:
    """Return the spec's rejecting checks of raw data that are queries in SQL."""
    checks = _of_spec(data, "raw")
    return [check for check in checks if check.severity == "reject" and check.expectation == QUERY]


def prepared_checks(
    data: Data,
    preparation: Preparation,
    reference: dict[str, Any] | None = None,
    seasonal: Sequence[str] = (),
) -> list[ExpectationCheck]:
    """Return the checks of the prepared rows.

    Args:
        data: The spec's data block.
        preparation: The preparation of the rows.
        reference: The result of `reference` for the champion's data, if there is a champion.
        seasonal: Columns with expected drift (`monitor.seasonal`): their distributions are not compared.
    """
    target = preparation.target
    checks = [
        ExpectationCheck(expectation="table_row_count_to_be_between", arguments={"min_value": least_rows(data)}),
        ExpectationCheck(expectation="column_values_to_be_unique", arguments={"column": ROW_COLUMN}),
        ExpectationCheck(
            expectation="column_values_to_be_in_set",
            arguments={"column": SPLIT_COLUMN, "value_set": [-1, 0, 1, 2]},
        ),
    ]
    if target.classes:
        arguments = {"column": target.name, "value_set": target.classes}
        checks.append(ExpectationCheck(expectation="column_values_to_be_in_set", arguments=arguments))
    return [*checks, *_of_spec(data, "prepared"), *_against(reference, preparation.column_inputs, seasonal)]


def reference(rows: pa.Table, inputs: Sequence[InputRecord]) -> dict[str, Any]:
    """Return the row count of prepared rows, and each input column's missing share and distribution, as plain data."""
    columns = {part.name: _COMPARED[part.form].shape(rows.column(part.name)) for part in inputs}
    return {"rows": rows.num_rows, "columns": columns}


def _of_spec(data: Data, on: str) -> Iterator[ExpectationCheck]:
    for expectation in data.expectations:
        if expectation.on == on:
            yield ExpectationCheck(
                expectation=expectation.expect.removeprefix("expect_"),
                arguments=expectation.arguments,
                severity=expectation.severity,
                origin="spec",
            )


def _present(column: str, share: float, severity: Any, origin: Any) -> ExpectationCheck:
    arguments = {"column": column, "mostly": round(share, 4)}
    return ExpectationCheck(
        expectation="column_values_to_not_be_null", arguments=arguments, severity=severity, origin=origin
    )


def _against(
    reference: dict[str, Any] | None, column_inputs: list[InputRecord], seasonal: Sequence[str]
) -> Iterator[ExpectationCheck]:
    """Yield the checks against the champion's data, as warnings: drift may be legitimate, and the verdict decides."""
    if reference is None:
        return
    yield ExpectationCheck(
        expectation="table_row_count_to_be_between",
        arguments={"min_value": int(reference["rows"] * LEAST_ROWS)},
        severity="warn",
        origin="champion",
    )
    for part in column_inputs:
        name, shape = part.name, reference["columns"].get(part.name)
        if shape is None:
            continue
        yield _present(name, max(0.0, 1 - shape["missing"] - MAX_NULLS_MORE), "warn", "champion")
        if _COMPARED[part.form].partition in (shape["partition"] or ()) and name not in seasonal:
            yield _divergence(name, shape["partition"])


def _divergence(column: str, partition: dict[str, Any]) -> ExpectationCheck:
    """Return a check that the Kullback-Leibler divergence is under 0.1, half of the index that means a change.

    Source: Siddiqi, "Credit Risk Scorecards", 2006: a population stability index over 0.2 to 0.25 is a change; the
    index is the sum of both divergences.
    """
    arguments: dict[str, Any] = {"column": column, "partition_object": partition, "threshold": MAX_DIVERGENCE}
    if "values" in partition:
        arguments["tail_weight_holdout"] = _UNSEEN
    return ExpectationCheck(
        expectation="column_kl_divergence_to_be_less_than",
        arguments=arguments,
        severity="warn",
        origin="champion",
    )


def _numeric_shape(column: pa.ChunkedArray) -> dict[str, Any]:
    values = scratch.numbers(column)
    present = scratch.chosen(values, ~np.isnan(values))
    shares = np.linspace(0, 1, _NUM_BINS + 1)
    edges = np.unique(np.quantile(present, shares, overwrite_input=True)) if len(present) else present
    partition = None
    if len(edges) > 2:
        # Adds half a row to each bin, so that a bin that is empty by chance does not make the divergence infinite.
        counts = np.histogram(present, edges)[0] + 0.5
        weights = counts / counts.sum() * (1 - 2 * _TAIL)
        partition = {"bins": edges.tolist(), "weights": weights.tolist(), "tail_weights": [_TAIL, _TAIL]}
    return {"missing": 1 - len(present) / max(len(values), 1), "partition": partition}


def _missing_alone(column: pa.ChunkedArray) -> dict[str, Any]:
    return {"missing": int(missing(column).sum()) / max(len(column), 1), "partition": None}


def _categorical_shape(column: pa.ChunkedArray) -> dict[str, Any]:
    partition = None
    if len(scratch.first_values(column, _MAX_VALUES + 1).drop_null()) <= _MAX_VALUES:
        counts = pc.value_counts(scratch.by_parts(column, pa.ChunkedArray.drop_null))
        pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
        commonest = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
        total = sum(count for _, count in commonest)
        if len(commonest) > 1:
            partition = {"values": [text for text, _ in commonest], "weights": [n / total for _, n in commonest]}
    return {"missing": column.null_count / max(len(column), 1), "partition": partition}


class _Compared(NamedTuple):
    """How the values of an input are compared with the champion's.

    Attributes:
        shape: Returns the share of missing values, and the distribution, if it is compared.
        partition: The key of the parts of such a distribution.
    """

    shape: Callable[[pa.ChunkedArray], dict[str, Any]]
    partition: str = ""


_COMPARED: dict[Form, _Compared] = {
    "number": _Compared(_numeric_shape, "bins"),
    "time": _Compared(_missing_alone),  # it only grows
    "category": _Compared(_categorical_shape, "values"),
    "text": _Compared(_missing_alone),
}
"""By the form of the values."""
