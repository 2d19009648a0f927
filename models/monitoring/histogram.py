"""Counts of a column over the bins of its reference: they are merged by addition and suffice for drift detection.

Numeric: up to 256 bins between quantiles of the training values. Layout of the counts, int64 (bin + 3): each bin;
missing; below the training minimum; above its maximum (the end bins include these two as well).
Categorical, int64 (category + 2): each category of training; categories unseen in training; missing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from models import scratch
from models.frozen_model import FrozenModel
from models.inputs.record import Measure
from models.inputs.types import as_text
from models.monitoring.grid import BinEdges

NUM_BINS = 256
MOST_QUANTILE_VALUES = 1_000_000

Counts = NDArray[Any]
"""Rows, int64 (cell,); of weighted rows the sums of their weights, float64 (cell,), see `as_rows`."""
Weights = NDArray[np.float64]


_DAY_S, _WEEK_S, _MONDAY_S = 86_400.0, 604_800.0, 345_600.0


class NumericBins(FrozenModel, extra="ignore"):  # a version of an earlier release has more
    """The bins of a numeric column: bin i holds `edges[i - 1] <= value < edges[i]`."""

    kind: Literal["numeric"] = "numeric"
    name: str
    of: Measure = Field("value", description="What of each value is counted.")
    edges: list[float] = Field(description="Ascending, all different; one less than there are bins.")
    low: float = Field(description="Smallest training value.")
    high: float
    spread: float = Field(description="Standard deviation of the training values; 0 for a constant.")

    @property
    def num_cells(self) -> int:
        """Length of the counts."""
        return len(self.edges) + 4

    @cached_property
    def grid(self) -> BinEdges:
        """The grid for the fast search of bins."""
        return BinEdges(np.asarray(self.edges, dtype=np.float64))

    def count(self, column: pa.ChunkedArray | pa.Array, weights: Weights | None = None) -> Counts:
        """Return the counts of numbers; null and NaN are missing. With weights (row,) they are sums, float64."""
        return self.count_numbers(measured(column, self.of), weights)

    def count_numbers(self, values: NDArray[np.float64], weights: Weights | None = None) -> Counts:
        """Return the counts of values that are `measured` already."""
        num_bins = len(self.edges) + 1
        counts = np.zeros(self.num_cells, dtype=np.int64 if weights is None else np.float64)
        counts[:num_bins] = np.bincount(self.grid.place(values), weights, minlength=num_bins)
        aside = np.isnan(values), values < self.low, values > self.high
        counts[num_bins:] = [mask.sum() if weights is None else weights[mask].sum() for mask in aside]
        counts[num_bins - 1] -= counts[num_bins]
        return counts

    def values_of(self, counts: Counts) -> Counts:
        """Return the counts of the values that are not missing, bin by bin."""
        return counts[:-3]

    def num_missing(self, counts: Counts) -> int:
        """Return the number of missing values."""
        return int(counts[-3])

    def num_outside(self, counts: Counts) -> int:
        """Return the number of values outside the training range."""
        return int(counts[-2] + counts[-1])


class CategoricalBins(FrozenModel):
    """The categories of a column, most frequent in training first."""

    kind: Literal["categorical"] = "categorical"
    name: str
    categories: list[str]

    @property
    def num_cells(self) -> int:
        """Length of the counts."""
        return len(self.categories) + 2

    def count(self, column: pa.ChunkedArray | pa.Array, weights: Weights | None = None) -> Counts:
        """Return the counts of texts, in the text form of the model; null and empty text are missing.

        With weights (row,) they are sums, float64.
        """
        whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        texts = as_text(whole)
        matches = pc.fill_null(pc.index_in(texts, pa.array(self.categories, pa.string())), len(self.categories))
        places = np.where(texts.is_null().to_numpy(), self.num_cells - 1, matches.to_numpy())
        counts: Counts = np.bincount(places, weights, minlength=self.num_cells)
        return counts if weights is not None else counts.astype(np.int64)

    def values_of(self, counts: Counts) -> Counts:
        """Return the counts of the values that are not missing: each category, then the unseen ones together."""
        return counts[:-1]

    def num_missing(self, counts: Counts) -> int:
        """Return the number of missing values."""
        return int(counts[-1])

    def num_outside(self, counts: Counts) -> int:
        """Return the number of values in categories unseen in training."""
        return int(counts[-2])


Bins = Annotated[NumericBins | CategoricalBins, Field(discriminator="kind")]


def as_rows(sums: Counts, weights: Weights) -> Counts:
    """Return sums of weights as counts of so many rows as the weighted ones are worth, int64 (cell,).

    Source: the effective number of rows, Kish (1965), Survey Sampling, 11.2.
    """
    worth = weights.sum() / max(float(np.square(weights).sum()), 1e-300)
    counts: Counts = np.diff(np.rint(np.cumsum(sums * worth)), prepend=0).astype(np.int64)
    return counts


def numeric_bins(name: str, values: NDArray[np.float64], measure: Measure = "value") -> NumericBins:
    """Return bins between the quantiles of training values (row,), `measured` already, NaN for missing.

    A column with fewer than 256 different values gets one bin for each value. The quantiles of a column longer than a
    million are those of a million of its values, evenly spaced.

    Source: bins by quantiles of the reference, as in Yurdakul (2018), Statistical properties of the population
    stability index; with 256 bins less than .004 of KS (a whole bin's weight) is lost.
    """
    present = scratch.chosen(values, ~np.isnan(values))
    if not len(present):
        return NumericBins(name=name, of=measure, edges=[], low=0.0, high=0.0, spread=0.0)
    step = -(-len(present) // MOST_QUANTILE_VALUES)
    shares = np.arange(1, NUM_BINS) / NUM_BINS
    edges = np.unique(np.quantile(present[::step], shares, method="inverted_cdf"))
    if present.min() == present.max():
        edges = np.append(edges, np.nextafter(edges[-1], np.inf))  # larger values than the constant get their own bin
    return NumericBins(
        name=name,
        of=measure,
        edges=edges.tolist(),
        low=float(present.min()),
        high=float(present.max()),
        spread=scratch.deviation(present),
    )


def measured(column: pa.ChunkedArray | pa.Array, measure: Measure) -> NDArray[np.float64]:
    """Return what is counted of a logged column, float64 (row,), NaN for missing. Times are seconds since 1970."""
    if measure == "characters":
        lengths = as_numbers(pc.utf8_length(column.cast(pa.string())))
        return np.where(lengths > 0, lengths, np.nan)
    values = as_numbers(column)
    if measure == "value":
        return values
    placed: NDArray[np.float64] = (
        np.mod(values, _DAY_S) if measure == "second of the day" else np.mod(values - _MONDAY_S, _WEEK_S)
    )
    return placed


def as_numbers(column: pa.ChunkedArray | pa.Array) -> NDArray[np.float64]:
    """Return a column of numbers as float64 (row,), NaN for null."""
    whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    values: NDArray[np.float64] = whole.cast(pa.float64(), safe=False).to_numpy()
    return values
