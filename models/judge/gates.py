"""The gates of promotion: each is a pure function from a verdict's numbers to pass or fail with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from models.judge.verdict import Difference, Gate, Slice, Verdict
from models.kinds.task import PerTask
from models.readable import readable

LEAST_CLUSTERS = 5
"""With fewer clusters, the widened intervals say hardly anything; with five the rate holds (test_comparison.py)."""

MOST_COPIES = 0.1
"""Most test rows of a first model that equal a row it has learnt from. A tenth that is known by heart makes an ROC AUC
of .55 out of noise."""


CLUSTERS: PerTask[str] = {
    "binary": "clusters",
    "multiclass": "clusters",
    "multilabel": "clusters",
    "regression": "clusters",
    "quantile": "clusters",
    "language": "clusters",
    "ranking": "groups with different grades",
}
"""What the clusters of test examples are called that count for a verdict."""


def gates_of(verdict: Verdict) -> list[Gate]:
    """Return every gate that the verdict's rules require, in the order for the reader."""
    return [gate for find in _GATES if (gate := find(verdict)) is not None]


def sample_gate(verdict: Verdict) -> Gate:
    """Pass if there are enough test examples for a decision."""
    num, num_needed = verdict.num_samples, verdict.rules.min_samples
    if num < num_needed:
        return _gate("sample", False, f"too few test examples: {num}, judge.min_samples asks for {num_needed}")
    if verdict.num_clusters is not None and verdict.num_clusters < LEAST_CLUSTERS:
        clusters = f"{verdict.num_clusters} {CLUSTERS[verdict.task]}, at least {LEAST_CLUSTERS} are needed"
        cure = f"; judge.unit is {verdict.rules.unit}: name a shorter one (none if the times are no dates)"
        cure = cure if verdict.rules.unit else "; take a larger test split"
        return _gate("sample", False, f"too few independent test examples: they fall into {clusters}{cure}")
    return _gate("sample", True, f"{num} test examples, {num_needed} are enough")


def champion_gate(verdict: Verdict) -> Gate | None:
    """Pass if the challenger is better (superiority), or not worse (noninferiority), by the margin."""
    if verdict.difference is None:
        return None
    rules = verdict.rules
    requirement = "better than the champion" if rules.mode == "superiority" else "no worse than the champion"
    requirement += f" by more than {number(verdict.margin)}" if verdict.margin else ""
    requirement += " (what this test set can resolve)" if verdict.test_set_margin else ""
    gain = f"{verdict.metric} {_gain(verdict, verdict.difference)}"
    if (
        verdict.difference.reached
        and rules.mode == "noninferiority"
        and not _excludes_loss(verdict, verdict.difference)
    ):
        return _gate("champion", True, f"no test example tells it from the champion: {gain}")
    if verdict.difference.reached:
        return _gate("champion", True, f"shown to be {requirement}: {gain}")
    return _gate("champion", False, f"not shown to be {requirement}: {gain}{_cure(verdict, verdict.difference)}")


def best_gate(verdict: Verdict) -> Gate | None:
    """Pass if the challenger is no worse, by the margin, than the best champion so far: small losses do not add up."""
    best = verdict.best
    if best is None:
        return None
    margin = verdict.rules.margin if verdict.rules.margin is not None else best.test_set_margin
    who = f"the best champion so far (version {best.id}, {verdict.metric} {number(best.estimate.value)})"
    requirement = f"no worse than {who} by more than {number(margin)}"
    if best.difference.reached:
        return _gate("best", True, f"shown to be {requirement}: {_gain(verdict, best.difference)}")
    cure = "; train a better model, or promote it by hand: it then becomes the reference"
    return _gate("best", False, f"not shown to be {requirement}: {_gain(verdict, best.difference)}{cure}")


def goal_gate(verdict: Verdict) -> Gate | None:
    """Pass if the value is at least as good as the goal of the spec."""
    if verdict.good_enough is None:
        return None
    value, bound = verdict.challenger.value, "least" if verdict.sign > 0 else "most"
    passed = value is not None and verdict.sign * (value - verdict.good_enough) >= 0
    requirement = f"goal.good_enough is {number(verdict.good_enough)} at {bound}"
    return _gate("goal", passed, f"{verdict.metric} is {number(value)}, {requirement}")


def baseline_gate(verdict: Verdict) -> Gate | None:
    """Pass if the challenger beats the trivial baseline."""
    if verdict.over_baseline is None or verdict.baseline is None:
        return None
    passed = verdict.over_baseline.reached
    verb = "beats" if passed else "is not shown to beat"
    baseline = f"({verdict.baseline_name}, {verdict.metric} {number(verdict.baseline.value)})"
    return _gate("baseline", passed, f"{verb} the trivial baseline {baseline}: {_gain(verdict, verdict.over_baseline)}")


def predictors_gate(verdict: Verdict) -> Gate | None:
    """Fail for a first model with a column that alone predicts the target: a person promotes it, or drops the column.

    A champion was let through by a person or never had such a column: its challengers are compared with it.
    """
    if verdict.champion is not None or not verdict.single_predictors:
        return None
    names = ", ".join(f"{name!r} ({score:.4g} of 1)" for name, score in verdict.single_predictors.items())
    return _gate(
        "predictors",
        False,
        f"alone enough to predict the target: {names}: a first model waits for a person. If it is known before the "
        "target is, promote this version by hand (`loopline promote`); if not, put it into data.features.drop",
    )


def copies_gate(verdict: Verdict) -> Gate | None:
    """Fail for a first model whose test rows are to more than `MOST_COPIES` copies of rows that it has learnt from."""
    share = verdict.copies or 0.0
    if verdict.champion is not None or share <= MOST_COPIES:
        return None
    return _gate(
        "copies",
        False,
        f"{share:.1%} of the test rows equal a training or validation row in every input and the target, at most "
        f"{MOST_COPIES:.0%} is allowed for a first model: drop the copies (data.deduplicate, or in the source), or "
        "promote this version by hand (`loopline promote`) if such rows come again and again",
    )


def slices_gate(verdict: Verdict) -> Gate | None:
    """Pass if no slice lost more than allowed, after correction for their number."""
    if verdict.rules.slice_margin is None or verdict.difference is None or not verdict.slices:
        return None
    tested = [part for part in verdict.slices if part.p_holm is not None]
    lost = sorted((part for part in tested if part.lost), key=lambda part: part.p_holm or 0.0)
    more_than = f"more than {number(verdict.rules.slice_margin)} of {verdict.metric}"
    if not lost:
        return _gate("slices", True, f"none of {len(tested)} tested slices is shown to lose {more_than}")
    losses = "; ".join(_slice_in_words(part) for part in lost[:3]) + (" and others" if len(lost) > 3 else "")
    return _gate("slices", False, f"{len(lost)} of {len(tested)} tested slices lose {more_than}: {losses}")


def latency_gate(verdict: Verdict) -> Gate | None:
    """Pass if the prediction of one row is fast enough."""
    return _cost_gate("latency", verdict.challenger_cost.latency_ms, verdict.max_latency_ms, "one row takes", "ms")


def size_gate(verdict: Verdict) -> Gate | None:
    """Pass if the model is small enough."""
    return _cost_gate("size", verdict.challenger_cost.size_mb, verdict.rules.max_size_mb, "the model takes", "MB")


def parity_gate(verdict: Verdict) -> Gate | None:
    """Pass if the exported graph predicts the same as the trained net."""
    parity = verdict.parity
    if parity is None:
        return None
    allowed = f"{number(parity.tolerance)} is allowed"
    reason = f"exported and trained model differ by at most {number(parity.max_difference)}, {allowed}"
    return _gate("parity", parity.max_difference <= parity.tolerance, f"{reason} ({parity.num_examples} examples)")


def number(value: float | None) -> str:
    """Return a number with four significant digits, as in `0.7462`; `undefined` for None."""
    return "undefined" if value is None else readable(value)


def signed(value: float) -> str:
    """Return a number with three significant digits and its sign, as in `+0.012`; zero has none."""
    return readable(value, 3, "+") if value else "0"


_GATES: tuple[Callable[[Verdict], Gate | None], ...] = (
    sample_gate,
    champion_gate,
    best_gate,
    goal_gate,
    baseline_gate,
    predictors_gate,
    copies_gate,
    slices_gate,
    latency_gate,
    size_gate,
    parity_gate,
)


def _gate(name: str, passed: bool, reason: str) -> Gate:
    return Gate.model_validate({"name": name, "passed": passed, "reason": reason})


def _gain(verdict: Verdict, difference: Difference) -> str:
    """Return `is better by 0.012 (...)`, in the direction of the metric, so that more is always better."""
    if difference.value is None:
        return "cannot be compared (undefined)"
    gain = verdict.sign * difference.value
    word = "is the same" if gain == 0 else f"is {'better' if gain > 0 else 'worse'} by {number(abs(gain))}"
    if difference.low is None or difference.high is None:
        return f"{word} (no interval: undefined on too many resamples)"
    low, high = sorted((verdict.sign * difference.low, verdict.sign * difference.high))
    interval = f"{verdict.rules.confidence * 100:.4g} % interval of the gain"
    return f"{word} ({interval} {signed(low)} to {signed(high)})"


def _excludes_loss(verdict: Verdict, difference: Difference) -> bool:
    """Return whether the interval leaves out a loss beyond the margin; that of a few equal rows does not."""
    ends = [verdict.sign * end for end in (difference.low, difference.high) if end is not None]
    return difference.value != 0 or min(ends, default=0.0) >= -verdict.margin


def _cure(verdict: Verdict, difference: Difference) -> str:
    rules = verdict.rules
    if difference.low is None or difference.high is None:
        return ""
    threshold = verdict.margin if rules.mode == "superiority" else -verdict.margin
    if max(verdict.sign * difference.low, verdict.sign * difference.high) < threshold:
        return ""
    if rules.mode == "noninferiority" and verdict.margin == 0:
        return "; set judge.margin to what you could afford to lose, or test on more examples"
    return "; the interval leaves it open: more test examples would decide"


def _slice_in_words(part: Slice) -> str:
    before = part.champion.value if part.champion else None
    change = f"{number(before)} to {number(part.challenger.value)}"
    return f"{part.column} = {part.value} ({change}, {part.num_samples} examples)"


def _cost_gate(
    name: Literal["latency", "size"], value: float | None, limit: float | None, quantity: str, unit: str
) -> Gate | None:
    if limit is None:
        return None
    allowed = f"at most {number(limit)} {unit} is allowed"
    if value is None:
        return _gate(name, False, f"{name} was not measured, {allowed}")
    return _gate(name, value <= limit, f"{quantity} {number(value)} {unit}, {allowed}")
