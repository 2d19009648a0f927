"""The model card: one page with a model's purpose, its verdict and the reasons, its data and its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from models.export.variants import VariantMeasurement
from models.judge.column_importance import Importances
from models.judge.verdict import Estimate, Verdict
from models.metrics.closed_form import LEAST_ROWS
from models.report.pages import render
from models.report.version_page import CARD_TABS

Facts = Mapping[str, object]
"""Facts in display order: a label in plain words -> text, number, list or None."""

Chapter = Literal["verdict", "performance", "slices", "data", "training", "search"]
_SOFT_GATES = {"champion", "best", "predictors", "copies"}
_REFERENCE = "for comparison, decides nothing"


class Figure(NamedTuple):
    """A figure of the card. `alt` describes it for readers who cannot see it; default: the caption."""

    title: str
    caption: str
    image: bytes
    chapter: Chapter = "performance"
    alt: str = ""


class Snippet(NamedTuple):
    """A usage example of the model: its purpose, and the command or code."""

    title: str
    code: str


@dataclass(frozen=True)
class Card:
    """All contents of a model card, as plain data; an empty chapter is left out."""

    project: str
    verdict: Verdict
    description: str = ""
    version: str = ""
    loop_id: str = ""
    when: str = ""
    figures: Sequence[Figure] = ()
    data: Facts = field(default_factory=dict)
    schema: Sequence[Facts] = ()
    """One row for each input column; all with the same keys."""
    training: Facts = field(default_factory=dict)
    settings: Facts = field(default_factory=dict)
    """Hyperparameters of the final training that differ from the defaults, or were searched."""
    defaults: Facts = field(default_factory=dict)
    """The others."""
    decision: Facts = field(default_factory=dict)
    """How probabilities become a label: calibration and decision threshold."""
    importances: Importances | None = None
    """What the columns are worth to the served model; None where that was not measured."""
    quantiles: Facts = field(default_factory=dict)
    """How the quantiles were calibrated: the share of true values below each, as trained."""
    search: Facts = field(default_factory=dict)
    families: Sequence[Facts] = ()
    """One row for each family of nets that the search chose from; all with the same keys."""
    provenance: Facts = field(default_factory=dict)
    samples: Sequence[Snippet] = ()
    """Texts that the model generated, if it is a text model."""
    variants: Sequence[VariantMeasurement] = ()
    """The export and its smaller variants, as measured on validation rows."""
    usage: Sequence[Snippet] = ()
    next_steps: Sequence[str] = ()
    """What to try after a refusal, one sentence each."""
    warnings: Sequence[str] = ()
    """Faults that a reader must not miss, one sentence each."""
    limits: Sequence[str] = ()
    """Uses that the model is not made for, one sentence each."""
    links: Mapping[str, str] = field(default_factory=dict)


class _Row(NamedTuple):
    name: str
    estimate: Estimate
    note: str


def render_card(card: Card) -> str:
    """Return the card as one self-contained HTML page: no script, no external resources.

    With SVG figures it is well under 1.5 MB.
    """
    by_chapter: dict[str, list[Figure]] = {}
    for picture in card.figures:
        by_chapter.setdefault(picture.chapter, []).append(picture)
    return render(
        "card.html.j2",
        card=card,
        tabs=CARD_TABS,
        closed_from=LEAST_ROWS,
        verdict=card.verdict,
        light=traffic_light(card.verdict),
        rows=_rows(card.verdict),
        figures=by_chapter,
    )


def traffic_light(verdict: Verdict) -> Literal["green", "amber", "red"]:
    """Return green: promoted; amber: sound, but the champion stays or a person decides; red: it may not serve."""
    if verdict.promoted:
        return "green"
    return "amber" if {gate.name for gate in verdict.failed} <= _SOFT_GATES else "red"


def _rows(verdict: Verdict) -> list[_Row]:
    rows = [_Row("challenger", verdict.challenger, "")]
    if verdict.champion:
        rows.append(_Row("champion", verdict.champion, f"version {verdict.champion_id}" if verdict.champion_id else ""))
    if verdict.best:
        rows.append(_Row("best champion so far", verdict.best.estimate, f"version {verdict.best.id}"))
    if verdict.baseline:
        rows.append(_Row("baseline", verdict.baseline, verdict.baseline_name))
    return rows + [_Row(name, Estimate(value=value), _REFERENCE) for name, value in verdict.references.items()]
