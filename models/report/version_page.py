"""The pages of a project's versions: all over time, one with its verdict, loop and pages, and two side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from models.inference.box import Box
from models.judge.column_importance import Importances
from models.judge.gates import signed
from models.judge.verdict import Difference
from models.judge.worst_rows import WorstExamples
from models.report import pages
from models.report.bar_chart import Bar, bar_chart, patch_map
from models.report.facts import LastLoop, Overview
from models.report.line_chart import Chart, Line, Mark, line_chart
from models.report.overview_page import FILTERS, Link
from models.report.version_contents import (
    MOST_BARS,
    VersionContents,
    compared_costs,
    compared_metrics,
    compared_slices,
    curves,
    differing_keys,
    importance_bars,
)
from models.serving.playground_form import Control, Occlusion, PlaygroundAnswer, PlaygroundField, PlaygroundForm
from models.serving.registry import ChampionMove, RegisteredVersion
from models.validation.data_profile import SampleRow

MOST_OPTIONS = 40
"""Categories of a list to choose from; of more the control suggests some."""
CARD_TABS = {
    "verdict": "Verdict",
    "performance": "Performance",
    "data": "Data",
    "training": "Training",
    "use": "Use",
    "all": "All",
}
"""The parts of the card by their anchors, and the words of their tabs; `all` shows the other ones together."""
LEAST_SHARE = 0.1
"""The part of the largest change that a word must make to be marked."""
_MARKED = Markup('<mark class="c{colour}">{text} <small>{change}</small></mark>')
_MARKED_TEXT = Markup('<p class="marked">{}</p>')
_ELEMENTS: dict[Control, str] = {"decimal": "text", "choice": "text", "passage": "textarea", "file": "file"}
"""The element that takes a value."""


@dataclass(frozen=True)
class VersionSummary:
    """A version: `role` is champion, challenger, or empty; `registered` is in Unix seconds.

    Attributes:
        moves: Of the champion, from or to this version.
        card: The path of its card; empty: there is none.
        links: To the pages about it.
        downloads: To its files.
        importances: What its columns are worth; None where that is not stored.
        comparable: The numbers of the versions to compare it with, newest first.
    """

    version: RegisteredVersion
    registered: float
    role: str = ""
    moves: Sequence[ChampionMove] = ()
    card: str = ""
    links: Sequence[Link] = ()
    downloads: Sequence[Link] = ()
    importances: Importances | None = None
    comparable: Sequence[str] = ()


def render_version(project: str, facts: VersionSummary, last: LastLoop, now: float, logout: str = "") -> str:
    """Return the page of a version."""
    bars = importance_bars(facts.importances) if facts.importances else []
    chart = bar_chart(bars, "What each column is worth") if bars else None
    return _render("version", project, last, now, logout, facts=facts, chart=chart, tabs=CARD_TABS)


def render_against(
    project: str,
    ours: VersionContents,
    theirs: VersionContents,
    last: LastLoop,
    now: float,
    logout: str = "",
) -> str:
    """Return the page of two versions side by side."""
    verdicts = ours.version.verdict, theirs.version.verdict
    judged, difference = _compared_directly(ours.version, theirs.version)
    values: dict[str, Any] = {"metrics": [], "slices": [], "charts": [], "same_rows": False}
    if verdicts[0] and verdicts[1]:
        values["metrics"] = compared_metrics(verdicts[0], verdicts[1])
        values["slices"] = compared_slices(verdicts[0], verdicts[1])
        values["same_rows"] = verdicts[0].digests.get("target", "-") == verdicts[1].digests.get("target", "")
    metric = verdicts[0].metric if verdicts[0] else ""
    named = {f"version {contents.version.number}": contents for contents in (ours, theirs)}
    values["charts"] = [
        Chart(title, line_chart(lines, title, "epoch"), lines) for title, lines in curves(named, metric).items()
    ]
    return _render(
        "versions_against",
        project,
        last,
        now,
        logout,
        ours=ours,
        theirs=theirs,
        judged=judged,
        difference=difference,
        costs=compared_costs(ours.version, theirs.version),
        specs=differing_keys(ours.spec, theirs.spec),
        params=differing_keys(*(json.loads(part.version.tags.get("loopline.params", "{}")) for part in (ours, theirs))),
        **values,
    )


def render_worst(
    project: str, version: RegisteredVersion, worst: WorstExamples | None, last: LastLoop, now: float, logout: str = ""
) -> str:
    """Return the page of the test rows on which a version is furthest off.

    Args:
        project: The project.
        version: The version.
        worst: As they were stored with it; None: they were not, or cannot be read.
        last: The project's last loop, for a banner while it runs.
        now: Unix time, seconds.
        logout: The token of the form that ends the session.
    """
    columns = list(dict.fromkeys(name for example in worst.examples for name in example.values)) if worst else []
    return _render("version_worst", project, last, now, logout, version=version, worst=worst, columns=columns)


class TriedRow(NamedTuple):
    """What a person tried: the texts of a row by column, or rows as JSON, and what came of it; None: nothing yet."""

    answer: PlaygroundAnswer | None = None
    cells: Mapping[str, str] = {}
    rows: str | None = None


def render_playground(
    version: RegisteredVersion,
    form: PlaygroundForm,
    tried: TriedRow,
    samples: Sequence[SampleRow],
    overview: Overview,
    tokens: tuple[str, str],
) -> str:
    """Return the page on which a version is tried on a row.

    Args:
        version: The version.
        form: What it takes.
        tried: What was tried.
        samples: Rows of its data that may fill the form.
        overview: The overview of its project.
        tokens: That of the form, and that of the form that ends the session.
    """
    answer, charts = tried.answer, []
    if answer and answer.chances:
        bars = [Bar(name, chance) for name, chance in _largest(answer.chances)]
        charts.append(("Probabilities", bar_chart(bars, "Probability of each class")))
    if answer and answer.explanation:
        bars = [Bar(name, value) for name, value in _largest(answer.explanation.contributions)]
        charts.append(("What each column adds", bar_chart(bars, "What each column adds to the prediction")))
    charts += [_occlusion_chart(answer, part) for part in answer.occlusions] if answer else []
    return _render(
        "version_try",
        overview.projects[0].name,
        overview.projects[0].loop,
        overview.at,
        tokens[1],
        version=version,
        form=form,
        fields=[_control(field, tried.cells.get(field.name, field.value)) for field in form.fields],
        rows=form.rows if tried.rows is None else tried.rows,
        are_rows=tried.rows is not None,
        answer=answer,
        charts=charts,
        most_bars=MOST_BARS,
        samples=samples,
        pictures=[row for row in samples if row.picture],
        token=tokens[0],
    )


def _occlusion_chart(answer: PlaygroundAnswer, occlusion: Occlusion) -> tuple[str, Markup]:
    """Return the title and the chart of what the parts of a text or a picture add."""
    pairs = [*zip(occlusion.parts, occlusion.changes, strict=True)]
    if patches := [(part, change) for part, change in pairs if isinstance(part, Box)]:
        title = f"What each part of the picture adds to {occlusion.output}"
        return title, patch_map(answer.picture, patches, title)
    least = LEAST_SHARE * max(map(abs, occlusion.changes))
    words = [
        _MARKED.format(colour=int(change < 0), text=text, change=signed(change))
        if abs(change) > least
        else escape(str(text))
        for text, change in pairs
    ]
    title = f"What the words of {occlusion.column} add to {occlusion.output}"
    return title, _MARKED_TEXT.format(Markup(" ").join(words))


def _largest(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda pair: -abs(pair[1]))[:MOST_BARS]


class _Control(NamedTuple):
    """A control of a form: the type of an `input`, or `select` or `textarea`, with its value."""

    field: PlaygroundField
    kind: str
    value: str


def _control(field: PlaygroundField, value: str) -> _Control:
    """Return the control that takes a value: a list of few categories, else what suits the field."""
    if field.control == "moment":
        moment = _moment(value)
        return _Control(field, "text" if moment is None else "datetime-local", value if moment is None else moment)
    is_short = 0 < len(field.levels) <= MOST_OPTIONS
    return _Control(field, "select" if is_short else _ELEMENTS[field.control], value)


def _moment(text: str) -> str | None:
    """Return a time as a browser's control takes it, in UTC; None for one that it would not show."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if moment and moment.tzinfo:
        moment = moment.astimezone(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" if moment else ""


def _compared_directly(ours: RegisteredVersion, theirs: RegisteredVersion) -> tuple[str, Difference | None]:
    """Return which version was judged against the second, and by how much the first is better in the metric's unit."""
    for version, second, sign in ((ours, theirs, 1), (theirs, ours, -1)):
        difference = version.verdict.difference if version.verdict else None
        if version.verdict and version.verdict.champion_id == second.number and difference:
            value, ends = difference.value, [difference.low, difference.high]
            if sign < 0:
                value, *ends = (None if end is None else -end for end in (value, *reversed(ends)))
            return version.number, Difference(value=value, low=ends[0], high=ends[1])
    return "", None


def render_versions(
    project: str, versions: Sequence[VersionSummary], last: LastLoop, now: float, logout: str = ""
) -> str:
    """Return the page of all versions, newest first, with their metric over time.

    Args:
        project: The project.
        versions: Oldest first.
        last: The project's last loop, for a banner while it runs.
        now: Unix time, seconds.
        logout: The token of the form that ends the session.
    """
    return _render("versions", project, last, now, logout, versions=[*reversed(versions)], chart=trend(versions))


def trend(versions: Sequence[VersionSummary]) -> Markup | None:
    """Draw the metric on frozen test rows by version, with its interval and a dot in its verdict's colour.

    None for fewer than two.

    A metric that the goal no longer names is left out.
    """
    judged = [facts.version for facts in versions if facts.version.verdict and facts.version.number.isdecimal()]
    verdicts = [(int(version.number), version.verdict) for version in judged if version.verdict]
    same = [(number, verdict) for number, verdict in verdicts if verdict.metric == verdicts[-1][1].metric]
    points = [(number, verdict.challenger.value) for number, verdict in same if verdict.challenger.value is not None]
    if len(points) < 2:
        return None
    spans = [
        (number, verdict.challenger.low, verdict.challenger.high)
        for number, verdict in same
        if verdict.challenger.low is not None and verdict.challenger.high is not None
    ]
    metric = same[-1][1].metric
    marks = [
        Mark(number, verdict.challenger.value, "green" if verdict.promoted else "amber")
        for number, verdict in same
        if verdict.challenger.value is not None
    ]
    return line_chart([Line(metric, points, spans, marks)], f"{metric} on test rows", "version")


def _render(template: str, project: str, last: LastLoop, now: float, logout: str, **values: Any) -> str:
    return pages.render(
        f"overview/{template}.html.j2",
        filters=FILTERS,
        project=project,
        running=last,
        now=now,
        logout=logout,
        interval=pages.interval,
        **values,
    )
