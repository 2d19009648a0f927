"""The data contract of a model: ranges, missing values and known categories of its inputs.

Ranges come from the spec's expectations. Without one, the range is the training range plus its own width on either
side: a new extreme is no error, but a value a thousand times larger is. Seasonal columns have only declared ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from models.monitoring.distances import shares_differ
from models.monitoring.histogram import NumericBins
from models.monitoring.reference import ReferenceColumn
from models.monitoring.report import ContractBreach
from models.monitoring.tally import INPUT, Bounds, PredictionCounts
from models.project_spec.blocks import Data
from models.project_spec.monitor_and_retrain import Monitor

_BETWEEN = "column_values_to_be_between"
_EXPECTED = ", expected "


def bounds_of(columns: Sequence[ReferenceColumn], data: Data, seasonal: Sequence[str] = ()) -> Bounds:
    """Return the smallest and largest allowed value of each numeric column that has a range."""
    declared = _declared(data)
    bounds: dict[str, tuple[float | None, float | None]] = {}
    for column in columns:
        bins = column.bins
        if isinstance(bins, NumericBins) and bins.of != "value":
            continue  # each place in a cycle is in its range
        if bins.name in declared:
            bounds[bins.name] = declared[bins.name]
        elif isinstance(bins, NumericBins) and bins.high > bins.low and bins.name not in seasonal:
            width = bins.high - bins.low
            bounds[bins.name] = bins.low - width, bins.high + width
    return bounds


def breaches(
    now: PredictionCounts,
    columns: Sequence[ReferenceColumn],
    monitor: Monitor,
    bounds: Bounds,
    *,
    shows_values: bool = True,
) -> list[ContractBreach]:
    """Return the contract breaches of a window, in the order of the reference's columns.

    Without `shows_values` none names a range, from which the least and the greatest training value follow.
    """
    if not now.num_rows:
        return []
    all_of_them = [breach for column in columns for breach in _of_column(now, column, monitor, bounds)]
    return all_of_them if shows_values else [_without_range(breach) for breach in all_of_them]


def _without_range(breach: ContractBreach) -> ContractBreach:
    words = breach.reason.partition(_EXPECTED)[0] if breach.kind == "range" else breach.reason
    return breach.model_copy(update={"reason": words})


def _of_column(
    now: PredictionCounts, column: ReferenceColumn, monitor: Monitor, bounds: Bounds
) -> Iterator[ContractBreach]:
    counts = now.counts.get(INPUT + column.name)
    if counts is None:
        return
    missing = column.bins.num_missing(counts)
    yield from _nulls(now, column, missing, monitor)
    present = now.num_rows - missing
    if not present:
        return
    if column.name in bounds:
        yield from _range(column.name, now.broken.get(INPUT + column.name, 0) / present, bounds[column.name], monitor)
    if column.bins.kind == "categorical":
        yield from _categories(column, column.bins.num_outside(counts) / present, monitor)


def _nulls(now: PredictionCounts, column: ReferenceColumn, missing: int, monitor: Monitor) -> Iterator[ContractBreach]:
    share = missing / now.num_rows
    before = column.bins.num_missing(column.counts)
    differ = shares_differ(missing, now.num_rows, before, column.num_rows)
    if abs(share - column.nulls) > monitor.nulls and differ < monitor.alpha:
        words = f"{column.name}: {_percent(share)} of the values are missing, in training {_percent(column.nulls)}"
        yield ContractBreach(column=column.name, kind="nulls", share=share, expected=column.nulls, reason=words)


def _range(
    name: str, share: float, bounds: tuple[float | None, float | None], monitor: Monitor
) -> Iterator[ContractBreach]:
    if share > monitor.new_categories:
        low, high = bounds
        allowed = " and ".join(
            f"{word} {limit:g}" for word, limit in (("at least", low), ("at most", high)) if limit is not None
        )
        words = f"{name}: {_percent(share)} of the values are out of range{_EXPECTED}{allowed}"
        yield ContractBreach(column=name, kind="range", share=share, expected=0.0, reason=words)


def _categories(column: ReferenceColumn, share: float, monitor: Monitor) -> Iterator[ContractBreach]:
    usual = max(column.outside, column.bins.num_outside(column.counts) / max(1, column.num_rows))
    if share > usual + monitor.new_categories:
        words = f"{column.name}: {_percent(share)} of the values are categories that training never saw"
        yield ContractBreach(column=column.name, kind="categories", share=share, expected=usual, reason=words)


def _declared(data: Data) -> Mapping[str, tuple[float | None, float | None]]:
    """Return the ranges that the spec's expectations require of all values; expectations that only warn give none."""
    bounds: dict[str, tuple[float | None, float | None]] = {}
    for expectation in data.expectations:
        arguments = expectation.arguments
        must_hold = (
            expectation.severity == "reject" and arguments.get("mostly", 1) == 1 and not arguments.get("row_condition")
        )
        if expectation.expect.removeprefix("expect_") == _BETWEEN and must_hold:
            limits = arguments.get("min_value"), arguments.get("max_value")
            if all(limit is None or isinstance(limit, int | float) for limit in limits) and limits != (None, None):
                column = str(arguments.get("column"))
                bounds[column] = _both(bounds.get(column, (None, None)), limits)
    return bounds


def _both(
    range_: tuple[float | None, float | None], other_range: tuple[float | None, float | None]
) -> tuple[float | None, float | None]:
    lows, highs = ([limit for limit in pair if limit is not None] for pair in zip(range_, other_range, strict=True))
    return max(lows, default=None), min(highs, default=None)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
