"""The pages of the data as HTML: all versions, one column by column, and two side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from models.report import pages
from models.report.bar_chart import side_by_side, stacked
from models.report.data_pages import sentences
from models.report.data_pages.comparison import ColumnChange, compare
from models.report.overview_page import FILTERS
from models.report.pages import show
from models.validation.data_profile import ColumnProfile, DataProfile, Unit

MOST_CHANGES = 200
NEUTRAL = 7
"""The colour of a column that is not counted by group, where others are."""
MOST_NAMED = 4
"""Categories that are named below a chart."""
METRICS = {
    "roc_auc": ("ROC AUC", "0.5 says nothing of the class, 1 everything"),
    "r2": ("R2 of the ranks", "0 says nothing of the target, 1 everything"),
}
"""What the measures of a column's relation to the target are called, and how they are read."""


@dataclass(frozen=True)
class DataVersion:
    """A version of the data, as the records of loops name it.

    Attributes:
        data: DVC's hash of the prepared data, by which pages name it.
        created: Unix time, seconds.
        num_columns: Of the raw data.
        source: Where it came from; empty: it was not recorded.
        versions: The model versions that were trained on it.
        is_removed: Whether a clean-up has removed the data.
    """

    project: str
    data: str
    raw: str
    loop_id: str
    created: float
    rows: Mapping[str, int] = field(default_factory=dict)
    num_columns: int = 0
    source: str = ""
    versions: Sequence[str] = ()
    is_removed: bool = False


@dataclass(frozen=True)
class PageContext:
    """The time in Unix seconds, and the token of the form that ends the session."""

    now: float
    logout: str = ""


def render_list(versions: Mapping[str, Sequence[DataVersion]], context: PageContext, project: str = "") -> str:
    """Return the page of all versions of the data, by project; `project`: the only one that is shown."""
    return _render("data_list", context, versions=versions, project=project)


def render_data(
    version: DataVersion,
    profile: DataProfile | None,
    siblings: Sequence[DataVersion],
    files: Sequence[str],
    context: PageContext,
) -> str:
    """Return the page of a version of the data.

    Args:
        version: The version.
        profile: What it is like; None: it was not recorded.
        siblings: The project's other versions, newest first.
        files: The files that may be downloaded.
        context: The time and the form to log out.
    """
    return _render(
        "data",
        context,
        version=version,
        profile=profile,
        siblings=siblings,
        files=files,
        metrics=_metrics(profile) if profile else [],
        scored=any(column.score is not None for column in profile.columns) if profile else False,
    )


def render_against(
    before: DataVersion,
    after: DataVersion,
    profiles: tuple[DataProfile | None, DataProfile | None],
    context: PageContext,
) -> str:
    """Return the page of two versions side by side; `profiles` of the version before and the one after."""
    old, new = profiles
    compared = compare(old, new) if old and new else None
    return _render("data_against", context, before=before, after=after, compared=compared, most=MOST_CHANGES)


def chart(column: ColumnProfile, groups: Sequence[str]) -> Markup | str:
    """Return a column's histogram, by group of the target; empty for a column that was not counted."""
    counted = column.histogram or column.categories
    if counted is None:
        return ""
    counts = counted.counts
    has_groups = len(counts) > 1
    is_apart = len(groups) > 1 and not has_groups
    if column.categories and not any(group[-1] for group in counts):
        counts = [group[:-1] for group in counts]
    suffix = f" by {', '.join(groups)}" if has_groups else ""
    return stacked(counts, f"{column.name}{suffix}: {spread(column)}", NEUTRAL if is_apart else 0)


def chart_of_both(change: ColumnChange) -> Markup | str:
    """Return how a column's values are spread before and after; empty if that cannot be compared."""
    if change.shares is None:
        return ""
    shares, column = change.shares, change.after
    pairs = zip(shares.labels, shares.before, shares.after, strict=True)
    furthest = max(pairs, key=lambda pair: abs(pair[1] - pair[2]))
    where = amount(furthest[0], column.unit) if column and isinstance(furthest[0], float) else furthest[0]
    label = f"{change.name}: furthest apart at {where}, {show(100 * furthest[1])} % before, {show(100 * furthest[2])} %"
    return side_by_side(shares.before, shares.after, f"{label} after")


def spread(column: ColumnProfile) -> str:
    """Return how a column's values are spread, in words."""
    if column.categories:
        totals = [sum(place) for place in zip(*column.categories.counts, strict=True)]
        whole = sum(totals) or 1
        named = zip(column.categories.names[:MOST_NAMED], totals, strict=False)
        texts = [f"{name} {show(round(100 * total / whole, 1))} %" for name, total in named]
        return ", ".join(texts) + (", …" if len(column.categories.names) > MOST_NAMED else "")
    if not column.quantiles:
        return "no value" if column.distinct == 0 else "not counted"
    minimum, low, middle, high, maximum = (amount(value, column.unit) for value in column.quantiles)
    if minimum == maximum != "–":
        return f"all {middle}"
    ends = f" ({minimum} to {maximum})" if column.quantiles[0] is not None else ""
    return f"half within {low} to {high}, median {middle}{ends}".replace(f"{UNIT} to", " to")


def amount(value: float | None, unit: Unit) -> str:
    """Return a number in its unit: a time as a date."""
    return "–" if value is None else _AMOUNTS[unit](value)


def _time(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return str(show(seconds))
    return f"{moment:%Y-%m-%d}" if moment.hour == moment.minute == moment.second == 0 else f"{moment:%Y-%m-%d %H:%M}"


UNIT = " characters"
_AMOUNTS: dict[Unit, Callable[[float], str]] = {
    "value": lambda value: str(show(value)),
    "seconds": _time,
    "characters": lambda value: f"{show(round(value))}{UNIT}",
}


def _metrics(profile: DataProfile) -> list[tuple[str, str]]:
    """Return the measures on a page, and how they are read."""
    return [METRICS[name] for name in METRICS if any(column.metric == name for column in profile.columns)]


def _render(template: str, context: PageContext, **values: Any) -> str:
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        now=context.now,
        logout=context.logout,
        chart=chart,
        chart_of_both=chart_of_both,
        spread=spread,
        metric_names={name: words for name, (words, _) in METRICS.items()},
        sentence=sentences.sentence,
        column_words=sentences.column_words,
        subject=sentences.subject,
        broken=sentences.broken,
        outcome=sentences.outcome,
        **values,
    )
