"""What a version of the data is like, column by column, as the pages show it: counts and a few rows, as plain data.

It is computed once, where the data is versioned (`models/validation/profiling.py`), and then only read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from models.frozen_model import FrozenModel

FORM = 1
"""Number of this form of the file; one of another form is made again."""
FEWEST_ALIKE = 10
"""Where no rows may be shown, neither is a value that fewer rows have."""
COARSEST = 8
"""Bins are not widened to fewer than these; those of few rows are then left out."""
OTHERS = "others"
"""The group of the classes that are not named."""
Unit = Literal["value", "seconds", "characters"]


class Histogram(FrozenModel):
    """The numbers of a column in bins, by group of the target.

    Bin i holds `(first + i) * width <= value < (first + i + 1) * width`. The width is a power of two, so that the bins
    of two versions always fit into each other. The first and the last count of a group are those beyond the bins.
    """

    width: float
    first: int
    counts: list[list[int]] = Field(description="(group, bin + 2)")


class Categories(FrozenModel):
    """The most frequent values of a column, by group of the target; the last count of a group is of all others."""

    names: list[str]
    counts: list[list[int]] = Field(description="(group, name + 1)")


class ColumnProfile(FrozenModel):
    """A column of the data.

    Attributes:
        role: target, input, or what else it is for.
        kind: The kind of input that it is; for others what its values are.
        reason: Why it has this kind, or is no input.
        dtype: Arrow's type in the raw data.
        missing: Share of the rows without a value.
        distinct: Number of different values in the counted rows; None: it was not counted.
        unit: What of each value is counted.
        quantiles: Least, first quarter, median, third quarter and greatest of the numbers; empty for categories. None:
            it is not shown.
        metric: The measure of `score`.
        score: How well this column alone predicts the target, on validation rows; None: it was not measured.
    """

    name: str
    role: str
    kind: str
    reason: str
    dtype: str = ""
    missing: float = 0.0
    distinct: int | None = None
    unit: Unit = "value"
    quantiles: list[float | None] = Field(default_factory=list)
    histogram: Histogram | None = None
    categories: Categories | None = None
    metric: str = ""
    score: float | None = None


class SampleRow(FrozenModel):
    """A row of the raw data as texts, in the order of `DataProfile.shown_columns`.

    `number` counts from 1. `split` is empty for a row that is no example. `picture` is a PNG in base64.
    """

    number: int
    split: str
    cells: list[str]
    picture: str = ""


class CheckedExpectation(FrozenModel):
    """What came of an expectation. `severity` is reject or warn; the examples are values or rows that broke it."""

    stage: str
    expectation: str
    column: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    severity: str = "reject"
    origin: str = ""
    success: bool
    observed: Any = None
    unexpected_count: int | None = None
    unexpected_percent: float | None = None
    examples: list[Any] = Field(default_factory=list)
    error: str | None = None


class IdSketch(FrozenModel):
    """The least of the hashes of all rows, in ascending order, from which it follows how many rows two versions share.

    Source: Bar-Yossef et al. (2002), Counting distinct elements in a data stream: k minimum values.
    """

    num_rows: int
    hashes: list[int]
    is_by_id: bool = Field(description="Whether the hashes are of ids; else of all values of a row.")


class DataProfile(FrozenModel):
    """A version of the data.

    Attributes:
        data: DVC's hash of the prepared data.
        raw: DVC's hash of the raw data.
        created: Unix time, seconds.
        num_raw: Rows of the source and labelled predictions.
        num_counted: Of the prepared rows, those that were counted: evenly spread over all.
        rows: Examples by split.
        groups: The groups of the target by which columns are counted; a single one without a name: none.
        columns: The target first, then the inputs, then the others.
        num_columns: Of the data; more than `columns` has.
        shown_columns: The columns of `sample`.
        sample: Rows of the raw data; empty where the spec says that none may be shown.
    """

    form: int = FORM
    data: str = ""
    raw: str = ""
    project: str = ""
    loop_id: str = ""
    source: str = ""
    created: float = 0.0
    num_raw: int
    num_prepared: int
    num_counted: int
    rows: dict[str, int]
    groups: list[str] = Field(default_factory=lambda: [""])
    columns: list[ColumnProfile] = Field(default_factory=list)
    num_columns: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)
    extremes: dict[str, str] = Field(default_factory=dict)
    validation: list[CheckedExpectation] = Field(default_factory=list)
    ids: IdSketch | None = None
    shows_rows: bool = True
    shown_columns: list[str] = Field(default_factory=list)
    sample: list[SampleRow] = Field(default_factory=list)

    def without_rows(self) -> DataProfile:
        """Return a copy without values of single rows: none that fewer than `FEWEST_ALIKE` rows have."""
        groups, joined = self._groups_of_many_rows()
        columns = [column.model_copy(update=_of_many_rows(column)) for column in joined]
        validation = [
            CheckedExpectation(**result) for result in without_values(check.model_dump() for check in self.validation)
        ]
        update = {"shows_rows": False, "groups": groups, "columns": columns, "validation": validation, "extremes": {}}
        return self.model_copy(update={**update, "sample": [], "shown_columns": []})

    def _groups_of_many_rows(self) -> tuple[list[str], list[ColumnProfile]]:
        """Return the names of the groups of many rows, and the columns by these; the small groups are one."""
        counted = [part.counts for column in self.columns for part in (column.histogram, column.categories) if part]
        by_group = [counts for counts in counted if len(counts) == len(self.groups) > 1]
        is_many = [max((sum(counts[place]) for counts in by_group), default=0) >= FEWEST_ALIKE
                   for place in range(len(self.groups))]  # fmt: skip
        if not by_group or all(is_many):
            return self.groups, self.columns
        names = [name for name, is_common in zip(self.groups, is_many, strict=True) if is_common and name != OTHERS]
        places = {name: place for place, name in enumerate(names)}
        joined = [places.get(name, len(names)) for name in self.groups]
        return [*names, OTHERS], [_with_joined_groups(column, joined) for column in self.columns]

    @classmethod
    def read(cls, text: str) -> DataProfile | None:
        """Return the profile that a file holds; None if it is of another form."""
        try:
            document = json.loads(text)
        except ValueError:
            return None
        is_ours = isinstance(document, dict) and document.get("form") == FORM
        return cls.model_validate(document) if is_ours else None


def without_values(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of a validation report without values of rows: numbers of rows stay, and what the spec says.

    The champion's distribution, with which columns are compared, is made of the values of its rows.
    """
    return [{**result, **_WITHOUT_VALUES, **_of_rows_alone(result)} for result in results]


_WITHOUT_VALUES: dict[str, Any] = {"examples": [], "observed": None}
_COUNTS = ("table_", "unexpected_rows_expectation", "column_unique_value_count_", "column_to_exist")
"""How the names of expectations begin whose observation is a number of rows, columns or values, or a column's name."""


def _of_rows_alone(result: Mapping[str, Any]) -> dict[str, Any]:
    alone: dict[str, Any] = {}
    if str(result["expectation"]).startswith(_COUNTS):
        alone["observed"] = result["observed"]
    if result["origin"] == "champion":
        alone["arguments"] = {key: value for key, value in result["arguments"].items() if key != "partition_object"}
    if result["error"]:  # of the engine, such as that it could not convert a value
        alone["error"] = f"{result['error'].partition(':')[0]} (data.show_rows: false leaves out what it says)"
    return alone


def _alike(counts: Sequence[Sequence[int]], places: Iterable[int]) -> list[bool]:
    """Return which of some cells at least `FEWEST_ALIKE` rows are in, over all groups."""
    return [sum(group[place] for group in counts) >= FEWEST_ALIKE for place in places]


def _of_many_rows(column: ColumnProfile) -> dict[str, Any]:
    quantiles = column.quantiles[1:-1]
    categories = column.categories
    if categories is None:
        histogram = column.histogram and _without_few(column.histogram)
        return {"quantiles": [None, *quantiles, None] if quantiles else [], "histogram": histogram}
    stays = _alike(categories.counts, range(len(categories.names)))
    return {"categories": Categories(
        names=[name for name, is_common in zip(categories.names, stays, strict=True) if is_common],
        counts=[_gathered(group, stays) for group in categories.counts],
    )}  # fmt: skip


def _without_few(histogram: Histogram) -> Histogram | None:
    """Return a histogram in wider bins, without those of few rows, which count as beyond the bins; None if none stays.

    A bin of whole numbers may be one value.
    """
    while True:
        num_bins = len(histogram.counts[0]) - 2
        stays = _alike(histogram.counts, range(1, num_bins + 1))
        if all(stays) or num_bins <= COARSEST:
            break
        histogram = _in_wider_bins(histogram)
    if not any(stays):
        return None
    first, end = stays.index(True), num_bins - stays[::-1].index(True)
    counts = []
    for group in histogram.counts:
        bins = [count if is_common else 0 for count, is_common in zip(group[1:-1], stays, strict=True)]
        counts.append([group[0] + sum(group[1:-1]) - sum(bins), *bins[first:end], group[-1]])
    return Histogram(width=histogram.width, first=histogram.first + first, counts=counts)


def _in_wider_bins(histogram: Histogram) -> Histogram:
    """Return a histogram in bins of twice the width."""
    counts = []
    for below, *bins, beyond in histogram.counts:
        whole = [*[0] * (histogram.first % 2), *bins]
        whole += [0] * (len(whole) % 2)
        counts.append([below, *map(sum, zip(whole[::2], whole[1::2], strict=True)), beyond])
    return Histogram(width=2 * histogram.width, first=histogram.first // 2, counts=counts)


def _with_joined_groups(column: ColumnProfile, places: Sequence[int]) -> ColumnProfile:
    """Return a column whose groups are joined: `places` says which one each of them becomes."""
    updates = {}
    for name in ("histogram", "categories"):
        counted: Histogram | Categories | None = getattr(column, name)
        if counted is not None and len(counted.counts) == len(places):
            joined = [[0] * len(counted.counts[0]) for _ in range(max(places) + 1)]
            for place, group in zip(places, counted.counts, strict=True):
                joined[place] = [sum(pair) for pair in zip(joined[place], group, strict=True)]
            updates[name] = counted.model_copy(update={"counts": joined})
    return column.model_copy(update=updates)


def _gathered(counts: Sequence[int], stays: Sequence[bool]) -> list[int]:
    common = [count for count, is_common in zip(counts, stays, strict=False) if is_common]
    return [*common, sum(counts) - sum(common)]
