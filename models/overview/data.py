"""What of the data did not hold, in words, from a validation report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.report.pages import show

OF_CHAMPION = "champion"


def failing(report: Mapping[str, Any]) -> list[str]:
    """The expectations of a report that failed, those that reject first; drift is told by `drifting`."""
    failed = [result for result in _failed(report) if result.get("origin") != OF_CHAMPION]
    failed.sort(key=lambda result: result.get("severity") == "warn")
    return [_words(result) for result in failed]


def drifting(report: Mapping[str, Any]) -> list[str]:
    """Where the data differs from the champion's: shown, for real data drift all the time."""
    return [_words(result) for result in _failed(report) if result.get("origin") == OF_CHAMPION]


def _failed(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result for result in report.get("results", []) if not result.get("success")]


def _words(result: Mapping[str, Any]) -> str:
    what = str(result.get("expectation", "")).replace("_", " ")
    where = f"{result['column']}: {what}" if result.get("column") else what
    if result.get("error"):
        return f"{where} (could not be checked: {result['error']})"
    if result.get("unexpected_count"):
        return f"{where} ({show(result['unexpected_count'])} rows break it)"
    return f"{where} (observed {show(result.get('observed'))})"
