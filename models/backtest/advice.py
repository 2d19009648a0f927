"""The recommended policy, with sentences on how certain the recommendation is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.backtest.policies import EVERY
from models.backtest.regret import FEW_PERIODS, PolicyRegret
from models.frozen_model import FrozenModel
from models.judge.gates import number
from models.judge.verdict import Estimate


class Advice(FrozenModel):
    """The recommended policy and the reasons; the first sentence is the summary."""

    policy: str
    words: list[str]


def advise(policy_regrets: Sequence[PolicyRegret], metric: str, margin: float, confidence: float) -> Advice:
    """Recommend the cheapest policy that is shown to lose no more than `margin` against the best.

    If the margin is zero, or the past too short to show it, this may be the best policy itself; then the words name the
    cheaper policies that do not differ significantly from it.

    Args:
        policy_regrets: At least one.
        metric: The goal's metric.
        margin: The allowed loss, in the metric's unit: the spec's `judge.margin`.
        confidence: Confidence of the intervals.
    """
    best = min(policy_regrets, key=lambda each: (_regret(each), each.device_seconds, each.loops))
    enough = [each for each in policy_regrets if each is best or _is_enough(each, margin)]
    chosen = min(enough, key=lambda each: (each.device_seconds, each.loops, _regret(each)))
    words = [_first_sentence(chosen, best, metric, margin)]
    words += _cheaper(policy_regrets, chosen, best, margin)
    words += _against_every(chosen, metric)
    words += _cautions(policy_regrets, best, confidence)
    return Advice(policy=chosen.policy, words=words)


def rounded(value: float | None, like: PolicyRegret, signed: bool = False) -> str:
    """Return a difference of metrics with as many decimals as the policy's mean has in four digits."""
    if value is None:
        return "–"
    mean = abs(like.mean.value or 1.0)
    decimals = max(0, 3 - math.floor(math.log10(mean))) if mean else 4
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{decimals}f}"


def _regret(each: PolicyRegret) -> float:
    return each.regret.value if each.regret.value is not None else float("inf")


def _is_enough(each: PolicyRegret, margin: float) -> bool:
    return each.regret.high is not None and each.regret.high <= margin


def _first_sentence(chosen: PolicyRegret, best: PolicyRegret, metric: str, margin: float) -> str:
    did = f"mean {metric} {number(chosen.mean.value)}, {_loops(chosen)}, {chosen.device_seconds:.0f} device-seconds"
    if chosen is best:
        return f"Take {chosen.policy}: it was the best ({did})."
    saved = best.device_seconds - chosen.device_seconds
    than = f"{saved:.0f} device-seconds less than {best.policy}, the best" if saved > 0 else f"as good as {best.policy}"
    lost = f"{rounded(chosen.regret.value, chosen)} of {metric} against it"
    most = f"{rounded(chosen.regret.high, chosen)} by the interval (judge.margin allows {number(margin)})"
    return f"Take {chosen.policy}: {than}, and it lost {lost}, at most {most}; {did}."


def _cheaper(
    policy_regrets: Sequence[PolicyRegret], chosen: PolicyRegret, best: PolicyRegret, margin: float
) -> list[str]:
    """Describe the cheaper policies that were not chosen: they are worse, or not shown to be as good."""
    words = []
    for names, each in _alike([one for one in policy_regrets if one.device_seconds < chosen.device_seconds]):
        lost = f"{names} lost {rounded(each.regret.value, each)} ({_interval(each)})"
        verb = "costs" if names == each.policy else "cost"
        loss = f"{lost} and {verb} {each.device_seconds:.0f} device-seconds"
        if each.regret.low is not None and each.regret.low > 0:
            words.append(f"{loss}: worse than {best.policy}.")
        else:
            near = f"nor shown to be within {number(margin)} of it" if margin else "nor shown to be as good"
            words.append(f"{loss}: not told apart from {best.policy}, {near}.")
    return words


def _alike(policy_regrets: Sequence[PolicyRegret]) -> list[tuple[str, PolicyRegret]]:
    """Return policies with the names of all that had the same result, cheapest first."""
    by_result: dict[tuple[float | None, float], list[PolicyRegret]] = {}
    for each in sorted(policy_regrets, key=lambda one: one.device_seconds):
        by_result.setdefault((each.regret.value, each.device_seconds), []).append(each)
    return [(_listed([one.policy for one in group]), group[0]) for group in by_result.values()]


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _against_every(chosen: PolicyRegret, metric: str) -> list[str]:
    against = chosen.regret_to_every
    if against is None or not against.value or chosen.policy == EVERY:
        return []
    verb = "gains" if against.value > 0 else "loses"
    finding = (
        f"Retraining every period {verb} {rounded(abs(against.value), chosen)} of {metric} against {chosen.policy}"
    )
    if against.low is None or against.high is None:
        return [f"{finding}."]
    sure = "" if against.low > 0 or against.high < 0 else ": the two cannot be told apart"
    return [f"{finding} (interval of the gain {_span(against, chosen)}){sure}."]


def _cautions(policy_regrets: Sequence[PolicyRegret], best: PolicyRegret, confidence: float) -> list[str]:
    periods = len(best.points)
    words = []
    if len(policy_regrets) > 1:
        words.append(
            f"{best.policy} was the best in {best.best_share:.0%} of the resamples; it was picked out of "
            f"{len(policy_regrets)} in hindsight, which flatters it. Intervals hold {confidence:.0%} of the resamples."
        )
    if periods < FEW_PERIODS:
        words.append(
            f"Only {periods} periods were replayed: the intervals are too narrow for what other periods may bring; "
            "a longer past or shorter periods would tell more."
        )
    return words


def _loops(each: PolicyRegret) -> str:
    return f"{each.loops} loop{'' if each.loops == 1 else 's'}"


def _interval(each: PolicyRegret) -> str:
    if each.regret.low is None or each.regret.high is None:
        return "no interval"
    return _span(each.regret, each)


def _span(spread: Estimate, like: PolicyRegret) -> str:
    return f"{rounded(spread.low, like, signed=True)} to {rounded(spread.high, like, signed=True)}"
