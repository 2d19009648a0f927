"""The scores of the comparison of defaults: the file that keeps them, and the page that is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.bench.quality_data import CASES, COMPARED_BEFORE, SEEN

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("quality.jsonl")
PAGE = ROOT / "docs" / "reference" / "quality.md"
OURS = "Loopline"
_HIGHER = ("roc_auc", "accuracy")
_HEAD = """\
# How good are the defaults?

<!-- Written by tests/bench/quality.py from tests/bench/quality.jsonl: `make bench-quality`. -->

Loopline with nothing but the source, the target and the goal, beside other tools as they come, on the same rows: the
goal on the test rows, the mean over splits, and its standard deviation over them. `roc_auc` and `accuracy`: more is
better; `mae`: less is better. The best of a line is bold. Splits of a series differ in the seed alone.
`never` counts the splits in which Loopline's model never predicts one of the classes. On one split, or few test rows, a
difference of a hundredth says little.

"""
_PEERS = """\
LightGBM: learning rate .05, early stopping on the validation rows. HGB: scikit-learn's histogram gradient boosting.
Linear: logistic or ridge regression, on TF-IDF for texts, on the window for series. Last value, seasonal naive: for
series, one step ahead. AutoGluon: `autogluon.tabular[lightgbm]` with its defaults, at most two minutes. A dash: not for
this kind of data, or not measured. `python -m tests.bench.quality --help` says how to measure again.
"""


@dataclass(frozen=True)
class Score:
    """One contestant on one data set and one split.

    Attributes:
        value: The goal on the test rows; None where the contestant does not apply or failed.
        cpu_s: CPU-seconds of all its processes.
        family: The net that Loopline's search chose.
        missed: Classes of the test rows that are never predicted.
        error: Why there is no value, if it failed.
    """

    case: str
    seed: int
    contestant: str
    metric: str
    value: float | None
    cpu_s: float
    family: str = ""
    missed: int = 0
    error: str = ""


def scores(path: Path = RESULTS) -> list[Score]:
    """Return all scores that were kept."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Score(**json.loads(line)) for line in lines]


def append(score: Score, path: Path = RESULTS) -> None:
    """Keep one score."""
    rounded = {**asdict(score), "cpu_s": round(score.cpu_s, 2)}
    if score.value is not None:
        rounded["value"] = round(score.value, 6)
    with path.open("a") as file:
        file.write(json.dumps(rounded) + "\n")


def page(found: Sequence[Score]) -> str:
    """Return the page: who won how often, the goals with losses as well as wins, the CPU-seconds, the failures."""
    known = {score.case for score in found}
    cases = [case.short for case in CASES if case.short in known]
    names = list(dict.fromkeys(score.contestant for score in found))
    summary = _summary(found, cases, [name for name in names if name != OURS])
    goals = _table(["data", "goal", "splits", *names, "chosen", "never"], _goal_lines(found, cases, names))
    costs = _table(["data", *names], _cost_lines(found, cases, names))
    failures = sorted({f"* {score.case}: {score.contestant}: {score.error}" for score in found if score.error})
    parts = [_HEAD + summary, "## The goal\n\n" + goals, "## CPU-seconds, all processes, the mean\n\n" + costs]
    parts += ["## Failures\n\n" + "\n".join(failures) + "\n"] if failures else []
    return "\n".join([*parts, "## What this is evidence for\n\n" + _PEERS + "\n" + _seen(cases)])


def best(values: dict[str, float], metric: str) -> float:
    """Return the best value."""
    return max(values.values()) if metric in _HIGHER else min(values.values())


def _summary(found: Sequence[Score], cases: Sequence[str], peers: Sequence[str]) -> str:
    lines = []
    for peer in peers:
        wins = losses = ties = 0
        for case in cases:
            ours, theirs = (_by_seed(found, case, name) for name in (OURS, peer))
            both = sorted(ours.keys() & theirs.keys())
            if not both:
                continue
            sign = 1 if _metric(found, case) in _HIGHER else -1
            gains = [sign * (ours[seed] - theirs[seed]) for seed in both]
            mean = float(np.mean(gains))
            wins, losses, ties = wins + (mean > 0), losses + (mean < 0), ties + (mean == 0)
        lines.append([peer, str(wins), str(losses), str(ties)])
    return "Data sets on which Loopline's mean is better, worse, equal:\n\n" + _table(
        ["against", "better", "worse", "equal"], lines
    )


def _goal_lines(found: Sequence[Score], cases: Sequence[str], names: Sequence[str]) -> Iterable[list[str]]:
    for case in cases:
        metric = _metric(found, case)
        values = {name: list(_by_seed(found, case, name).values()) for name in names}
        means = {name: float(np.mean(each)) for name, each in values.items() if each}
        top = best(means, metric) if means else None
        cells = [_cell(values[name], means.get(name) == top) for name in names]
        ours = [score for score in found if score.case == case and score.contestant == OURS]
        families = [score.family for score in ours if score.family]
        chosen = ", ".join(dict.fromkeys(sorted(families, key=families.count, reverse=True)))
        never = sum(score.missed > 0 for score in ours)
        yield [case, metric, str(len(ours)), *cells, chosen, str(never) if metric != "mae" else ""]


def _cost_lines(found: Sequence[Score], cases: Sequence[str], names: Sequence[str]) -> Iterable[list[str]]:
    for case in cases:
        cells = []
        for name in names:
            spent = [
                score.cpu_s
                for score in found
                if (score.case, score.contestant) == (case, name) and score.value is not None
            ]
            cells.append(f"{np.mean(spent):.1f}" if spent else "-")
        yield [case, *cells]


def _cell(values: Sequence[float], is_best: bool) -> str:
    if not values:
        return "-"
    text = f"{np.mean(values):.4g}" + (f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else "")
    return f"**{text}**" if is_best else text


def _by_seed(found: Sequence[Score], case: str, name: str) -> dict[int, float]:
    chosen = [score for score in found if (score.case, score.contestant) == (case, name)]
    return {score.seed: score.value for score in chosen if score.value is not None}


def _metric(found: Sequence[Score], case: str) -> str:
    return next(score.metric for score in found if score.case == case)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _seen(cases: Sequence[str]) -> str:
    seen = [f"* {name}: {what}" for name, what in SEEN.items() if name in cases]
    before = [name for name in COMPARED_BEFORE if name in cases]
    text = "No data set was chosen by its result, and none was tuned to. For these, a result was known when a\n"
    text += "default was set:\n\n"
    text += "\n".join(seen) + "\n"
    if before:
        text += f"\nResults were known, but no default was set on them: {', '.join(before)}.\n"
    return text + "\nNext: [errors, by message](errors.md)\n"
