"""The advice takes the cheapest policy that is shown to be good enough, and says so when nothing is shown."""

from __future__ import annotations

from models.backtest.advice import advise, rounded
from models.backtest.regret import PeriodMetric, PolicyRegret
from models.judge.verdict import Estimate


def standing(policy: str, mean: float, regret: tuple[float, float, float], cost: float, loops: int, periods: int = 12):
    value, low, high = regret
    points = [PeriodMetric(period=f"p{n}", rows=100, metric=Estimate(value=mean)) for n in range(periods)]
    return PolicyRegret(
        policy=policy,
        points=points,
        mean=Estimate(value=mean),
        regret=Estimate(value=value, low=low, high=high),
        regret_to_every=Estimate(value=value, low=low, high=high),
        best_share=0.5,
        loops=loops,
        won=loops,
        lost=0,
        failed=0,
        device_seconds=cost,
    )


BEST = standing("monthly", 0.75, (0.0, 0.0, 0.0), 90, 9)
NEAR = standing("decay", 0.749, (0.001, -0.002, 0.004), 20, 2)
FAR = standing("never", 0.70, (0.05, 0.04, 0.06), 0, 0)


def test_the_cheapest_within_the_margin_is_taken():
    advice = advise([FAR, BEST, NEAR], "roc_auc", 0.005, 0.95)
    assert advice.policy == "decay"
    assert advice.words[0].startswith("Take decay: 70 device-seconds less than monthly, the best")
    assert any(
        "never lost 0.0500 (+0.0400 to +0.0600)" in line and "worse than monthly" in line for line in advice.words
    )


def test_without_a_margin_the_best_is_taken_and_the_near_one_is_said_to_be_untold_apart():
    advice = advise([FAR, BEST, NEAR], "roc_auc", 0.0, 0.95)
    assert advice.policy == "monthly"
    assert any("decay" in line and "not told apart from monthly" in line for line in advice.words)


def test_policies_that_did_the_same_are_told_together():
    twins = [FAR, FAR.model_copy(update={"policy": "drift"}), BEST]
    assert any(line.startswith("never and drift lost 0.0500") for line in advise(twins, "roc_auc", 0.0, 0.95).words)


def test_a_short_past_is_said_to_be_short():
    few = [
        standing("monthly", 0.75, (0, 0, 0), 9, 2, periods=3),
        standing("never", 0.74, (0.01, 0, 0.02), 0, 0, periods=3),
    ]
    assert any("Only 3 periods" in line for line in advise(few, "roc_auc", 0.0, 0.95).words)
    assert not any("Only" in line for line in advise([BEST, FAR], "roc_auc", 0.0, 0.95).words)


def test_picking_in_hindsight_is_admitted():
    assert any("picked out of 3 in hindsight" in line for line in advise([FAR, BEST, NEAR], "roc_auc", 0, 0.95).words)


def test_against_retraining_every_period():
    words = advise([NEAR, BEST, FAR], "roc_auc", 0.005, 0.95).words
    assert any("Retraining every period gains 0.0010 of roc_auc against decay" in line for line in words)
    assert any("the two cannot be told apart" in line for line in words)


def test_one_policy_alone_is_taken():
    advice = advise([FAR], "roc_auc", 0.0, 0.95)
    assert advice.policy == "never"


def test_differences_are_told_with_the_decimals_of_their_metric():
    assert rounded(-8.5e-05, FAR) == "−0.0001"
    assert rounded(1e-9, FAR, signed=True) == "0.0000"
    assert rounded(3.21, standing("never", 1234.0, (0, 0, 0), 0, 0)) == "3"
    assert rounded(None, FAR) == "–"
