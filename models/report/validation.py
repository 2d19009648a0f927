"""The page of a validation report: expectations met and not met, and the rows that broke them.

The report is plain JSON-able data:

    project, dataset, when: text; rows, columns: numbers; success: bool
    results: a list of
        expectation (snake_case name), column (text or None), arguments (dict), severity (`reject` or `warn`),
        on (`raw` or `prepared`), success (bool), observed (anything), unexpected_count (int or None),
        unexpected_percent (0 to 100, or None), examples (list of failing values, or of dicts of a failing row),
        error (text when the check itself could not be run, else None)

Absent keys count as None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from models.report.data_pages.sentences import column_words, sentence
from models.report.pages import render

Outcome = Literal["passed", "warned", "rejected", "errored"]
MOST_EXAMPLES = 20


def render_validation(report: Mapping[str, Any]) -> str:
    """Return the report as one self-contained HTML page, failures first: no script, no external resources."""
    lines = sorted(map(_line, report.get("results") or ()), key=lambda line: _ORDER.index(line["outcome"]))
    counts = {outcome: sum(line["outcome"] == outcome for line in lines) for outcome in _ORDER}
    return render(
        "validation.html.j2",
        report={
            **dict.fromkeys(("project", "dataset", "stage", "loop_id", "when", "rows", "columns", "success")),
            **report,
        },
        lines=lines,
        counts=counts,
        light=_light(bool(report.get("success")), counts),
        summary=summary(report),
        most=MOST_EXAMPLES,
        column_words=column_words,
    )


def summary(report: Mapping[str, Any]) -> str:
    """Return the report in one sentence."""
    outcomes = [_outcome(result) for result in report.get("results") or ()]
    if not outcomes:
        return "Nothing was expected of this data."
    parts = [f"{outcomes.count('passed')} of {len(outcomes)} expectations met"]
    for outcome, words in _WORDS.items():
        if outcome in outcomes:
            parts.append(f"{outcomes.count(outcome)} {words}")
    start = "The data is accepted" if report.get("success") else "The data is rejected"
    return f"{start}: {', '.join(parts)}."


_ORDER: tuple[Outcome, ...] = ("errored", "rejected", "warned", "passed")
_WORDS: dict[Outcome, str] = {
    "rejected": "broken that must hold",
    "warned": "broken that only warn",
    "errored": "that could not be checked",
}


def _line(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return one expectation in the form for the page: with every key, and in words."""
    keys = ("column", "on", "observed", "unexpected_count", "unexpected_percent", "examples", "error")
    return {
        **{key: result.get(key) for key in keys},
        "outcome": _outcome(result),
        "expectation": sentence(str(result.get("expectation") or ""), result.get("arguments") or {}),
    }


def _outcome(result: Mapping[str, Any]) -> Outcome:
    if result.get("error"):
        return "errored"
    if result.get("success"):
        return "passed"
    return "warned" if result.get("severity") == "warn" else "rejected"


def _light(success: bool, counts: Mapping[Outcome, int]) -> Literal["green", "amber", "red"]:
    if not success:
        return "red"
    return "amber" if counts["warned"] + counts["rejected"] + counts["errored"] else "green"
