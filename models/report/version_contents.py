"""What two versions of a model have in common and where they differ, as rows of tables and lines of charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from models.judge.column_importance import Importances
from models.judge.verdict import Estimate, Verdict
from models.report.bar_chart import Bar
from models.report.line_chart import Line
from models.serving.registry import RegisteredVersion

COSTS = {
    "device_seconds": "CPU- or GPU-seconds, with the search",
    "peak_memory_mb": "most memory of a rank, MB",
    "energy_j": "energy, joule",
}
"""The costs of a training that are compared, and what they are in words."""
MOST_BARS = 15


@dataclass(frozen=True)
class VersionContents:
    """A version with what is stored of it.

    Attributes:
        version: With its verdict.
        spec: The spec that it was made by, as nested keys; empty if it was not stored.
        fits: The epochs of its training, by member; that of a single model by "".
        importances: What its columns are worth; None where that was not measured.
    """

    version: RegisteredVersion
    spec: Mapping[str, Any] = field(default_factory=dict)
    fits: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    importances: Importances | None = None


class Compared(NamedTuple):
    """A row of a table: the values of both versions; `difference` is the first minus the second, where both are."""

    name: str
    ours: Any
    theirs: Any
    difference: float | None = None


class ComparedSlice(NamedTuple):
    """The metric of both versions on a slice of the test rows."""

    name: str
    num_samples: int
    ours: Estimate | None
    theirs: Estimate | None
    difference: float | None


def compared_metrics(ours: Verdict, theirs: Verdict) -> list[Compared]:
    """Return every metric of both versions, that of the goal first."""
    names = dict.fromkeys([ours.metric, *ours.metrics, *theirs.metrics])
    rows = [_row(name, _metric(ours, name), _metric(theirs, name)) for name in names]
    return [row for row in rows if (row.ours, row.theirs) != (None, None)]


def _metric(verdict: Verdict, name: str) -> float | None:
    return verdict.challenger.value if name == verdict.metric else verdict.metrics.get(name, {}).get("challenger")


def compared_slices(ours: Verdict, theirs: Verdict) -> list[ComparedSlice]:
    """Return the slices of either version; none if their metrics differ."""
    if ours.metric != theirs.metric:
        return []
    named = [{(part.column, part.value): part for part in verdict.slices} for verdict in (ours, theirs)]
    rows = []
    for key in dict.fromkeys([*named[0], *named[1]]):
        mine, second = (parts.get(key) for parts in named)
        both = [part.challenger if part else None for part in (mine, second)]
        values = [estimate.value if estimate else None for estimate in both]
        num = max(part.num_samples for part in (mine, second) if part)
        rows.append(ComparedSlice(f"{key[0]} = {key[1]}", num, both[0], both[1], _less(*values)))
    return rows


def compared_costs(ours: RegisteredVersion, theirs: RegisteredVersion) -> list[Compared]:
    """Return what both versions cost to train and to serve."""
    rows = [_row(words, *(_cost(version, name) for version in (ours, theirs))) for name, words in COSTS.items()]
    serving = [version.verdict.challenger_cost if version.verdict else None for version in (ours, theirs)]
    for name, words in {"latency_ms": "latency of one row, ms", "size_mb": "size of the served file, MB"}.items():
        rows.append(_row(words, *(getattr(cost, name) if cost else None for cost in serving)))
    return [row for row in rows if (row.ours, row.theirs) != (None, None)]


def _cost(version: RegisteredVersion, name: str) -> float | None:
    text = version.tags.get(f"loopline.cost.{name}")
    return float(text) if text else None


def _row(name: str, ours: float | None, theirs: float | None) -> Compared:
    return Compared(name, ours, theirs, _less(ours, theirs))


def _less(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours - theirs


def differing_keys(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Compared]:
    """Return the keys that differ between two specs, in dotted form, or between what two searches chose."""
    mine, second = _flat(ours), _flat(theirs)
    rows = [Compared(name, mine.get(name), second.get(name)) for name in dict.fromkeys([*mine, *second])]
    return [row for row in rows if row.ours != row.theirs]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def curves(contents: Mapping[str, VersionContents], metric: str) -> dict[str, list[Line]]:
    """Return the learning curves of versions by what they show: the loss and the goal's metric on validation.

    Args:
        contents: The versions by the name that a line gets.
        metric: The goal's metric.
    """
    titles = {"Loss on training rows": "train_loss", "Loss on validation rows": "val_loss"}
    titles[f"{metric} on validation rows"] = f"val_{metric}"
    charts = {title: _lines(contents, name) for title, name in titles.items()}
    return {title: lines for title, lines in charts.items() if lines}


def _lines(contents: Mapping[str, VersionContents], name: str) -> list[Line]:
    lines = []
    for title, version in contents.items():
        for member, epochs in version.fits.items():
            points = [(float(number), epoch[name]) for number, epoch in enumerate(epochs, 1) if name in epoch]
            if points:
                lines.append(Line(f"{title}{member and f', {member}'}", points))
    return lines


def importance_bars(importances: Importances) -> list[Bar]:
    """Return what the columns are worth as bars, the first most."""
    return [Bar(column.column, column.loss, column.low, column.high) for column in importances.columns[:MOST_BARS]]
