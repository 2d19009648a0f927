"""The failed expectations of a validation report, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.feedback.columns import FEEDBACK_WORDS
from models.report.data_pages.sentences import clause, column_words
from models.report.pages import show

OF_CHAMPION = "champion"
MANY_UNUSABLE = 0.05
"""If a larger share of the labelled predictions is unusable, a person should look at the fault."""


def labelled(counts: Mapping[str, int]) -> str:
    """Return the outcome of the labelled predictions of the last ingest, in words; empty if there are none."""
    parts = [f"{counts[name]:,} {words}" for name, words in FEEDBACK_WORDS.items() if counts.get(name)]
    return f"labelled predictions: {', '.join(parts)}" if parts else ""


def has_many_unusable(counts: Mapping[str, int]) -> bool:
    """Return True if so many labelled predictions are lost that a person should know."""
    lost = counts.get("unfit", 0) + counts.get("rejected", 0)
    return lost > MANY_UNUSABLE * sum(counts.values())


def failing(report: Mapping[str, Any]) -> list[str]:
    """Return the failed expectations of a report, rejecting ones first; drift is reported by `drifting`."""
    failed = [result for result in _failed(report) if result.get("origin") != OF_CHAMPION]
    failed.sort(key=lambda result: result.get("severity") == "warn")
    return [_words(result) for result in failed]


def drifting(report: Mapping[str, Any]) -> list[str]:
    """Return the differences from the champion's data; they are only shown, because real data drifts all the time."""
    return [_words(result) for result in _failed(report) if result.get("origin") == OF_CHAMPION]


def _failed(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result for result in report.get("results", []) if not result.get("success")]


def _words(result: Mapping[str, Any]) -> str:
    check = clause(str(result.get("expectation", "")), result.get("arguments") or {})
    where = f"{column_words(result['column'])}: {check}" if result.get("column") else check
    if result.get("error"):
        return f"{where} (could not be checked: {result['error']})"
    if result.get("unexpected_count"):
        return f"{where} ({show(result['unexpected_count'])} rows break it)"
    return f"{where} (seen: {show(result.get('observed'))})"
