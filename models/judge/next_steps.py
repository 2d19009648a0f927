"""What to try after a refusal, from what the verdict has measured."""

from __future__ import annotations

import math

from models.judge.verdict import Difference, Verdict
from models.readable import readable

MOST_TIMES = 50
"""Of more test rows than so many times as many it is not said that they would decide."""


def next_steps(verdict: Verdict) -> list[str]:
    """Return what would decide a refused verdict, one sentence for each comparison; nothing for a promoted model."""
    if verdict.promoted:
        return []
    margin = verdict.margin if verdict.rules.mode == "superiority" else -verdict.margin
    comparisons = {"the champion": (verdict.difference, margin), "the baseline": (verdict.over_baseline, 0.0)}
    sentences = [
        _of_difference(verdict, name, difference, threshold)
        for name, (difference, threshold) in comparisons.items()
        if difference is not None and not difference.reached
    ]
    return [sentence for sentence in [*sentences, _of_goal(verdict), _of_class(verdict)] if sentence]


def _of_difference(verdict: Verdict, name: str, difference: Difference, threshold: float) -> str:
    """Say how many more rows would show a gain of this size, or how much better the model has to be.

    The reach of an interval falls with the square root of the rows.
    """
    if difference.value is None or difference.low is None or difference.high is None:
        return ""
    beyond, reach = verdict.sign * difference.value - threshold, (difference.high - difference.low) / 2
    if beyond <= 0:
        lacking = f"Against {name} it lacks {readable(-beyond)} of {verdict.metric}"
        return f"{lacking}: a better model is needed, more test rows of this one would not decide."
    times = (reach / beyond) ** 2
    gain = f"it is {readable(beyond)} of {verdict.metric} beyond what is required"
    sentence = f"Against {name} {gain}, and the interval reaches {readable(reach)} to each side"
    if not 1 < times <= MOST_TIMES:
        return f"{sentence}: too little for test rows to decide." if times > MOST_TIMES else ""
    rows_needed = readable(math.ceil((times - 1) * verdict.num_samples), 2)
    return f"{sentence}: about {rows_needed} more test rows would decide, if the gain stays."


def _of_goal(verdict: Verdict) -> str:
    value, goal = verdict.challenger.value, verdict.good_enough
    if value is None or goal is None or verdict.sign * (value - goal) >= 0:
        return ""
    low, high = verdict.challenger.low, verdict.challenger.high
    missed = f"It misses goal.good_enough by {readable(abs(goal - value))} of {verdict.metric}"
    if low is None or high is None or not low <= goal <= high:
        return f"{missed}, more than chance explains: a better model is needed, or another goal."
    return f"{missed}, and the interval of these {verdict.num_samples:,} test rows holds the goal: it may be chance."


def _of_class(verdict: Verdict) -> str:
    """Say which class holds the goal down most, by how much, and whether it has fewer training rows than others."""
    held = [recall for recall in verdict.classes if recall.goal is not None]
    if not held or verdict.challenger.value is None:
        return ""
    worst = max(held, key=lambda recall: verdict.sign * (recall.goal or 0.0))
    goal, recall = worst.goal or 0.0, worst.recall
    if verdict.sign * (goal - verdict.challenger.value) <= 0:
        return ""
    caught = (
        f"{recall.value:.0%} ({recall.low:.0%} to {recall.high:.0%}) of its {worst.num_samples:,} test rows are found"
    )
    gap = (
        f"Class {worst.name} holds {verdict.metric} down: {caught}, of the others' {worst.others:.0%}. Were it found "
        f"as often, {verdict.metric} would be {readable(goal)}, and not {readable(verdict.challenger.value)}"
    )
    trained = sorted(other.num_trained for other in verdict.classes if other is not worst and other.num_trained)
    if worst.num_trained is not None and trained and worst.num_trained < (middle := trained[len(trained) // 2]):
        rows = f"training has {worst.num_trained:,} rows of it, and {middle:,} of another class"
        return f"{gap}: {rows}, so more rows of class {worst.name} are the first thing to try."
    mistaken = f", as its rows are mostly taken for {worst.taken_for}" if worst.taken_for else ""
    return f"{gap}: it has no fewer training rows than others, so it lacks a column that tells it apart{mistaken}."
