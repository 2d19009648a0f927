"""Regret is paired, its interval honest: equal policies have none, a clear loss is clear, noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from models.backtest.contest import Score
from models.backtest.regret import Backtest, PolicyRegret, policy_regrets, recommended
from models.judge.verdict import Estimate
from tests.synthetic_past import Past, made_backtest


@pytest.fixture
def courses(past: Past):
    return [past.course(name, rows=300) for name in ("never", "monthly", "decay", "every")]


def by_name(told):
    return {each.policy: each for each in told}


def test_the_jump_costs_never_much_decay_a_month_and_monthly_the_same_month(past: Past, courses):
    told = by_name(policy_regrets(courses, past.scores(courses), sign=1))
    assert told["monthly"].mean.value == pytest.approx(told["every"].mean.value)
    assert told["decay"].regret.value == pytest.approx(0.0, abs=1e-9)
    assert told["never"].regret.value == pytest.approx(0.2 * 7 / 10, abs=0.01)
    assert told["never"].regret.low > 0
    assert told["never"].regret_to_every.low > 0
    assert (told["decay"].loops, told["decay"].device_seconds) == (1, 10.0)
    assert (told["monthly"].loops, told["monthly"].device_seconds) == (9, 90.0)


def test_a_policy_that_did_the_same_has_no_regret_and_no_interval_to_speak_of(past: Past):
    pair = [past.course("monthly", rows=300), past.course("every", rows=300)]
    for each in policy_regrets(pair, past.scores(pair), sign=1):
        assert (each.regret.value, each.regret.low, each.regret.high) == (0.0, 0.0, 0.0)


def test_where_less_is_better_regret_is_still_what_was_lost(past: Past, courses):
    scores = {key: Score(1 - one.value, 1 - one.drawn, one.num_rows) for key, one in past.scores(courses).items()}
    told = by_name(policy_regrets(courses, scores, sign=-1))
    assert told["never"].mean.value == pytest.approx(
        1 - by_name(policy_regrets(courses, past.scores(courses), 1))["never"].mean.value
    )
    assert told["never"].regret.value > 0.1
    assert told["never"].mean.low < told["never"].mean.value < told["never"].mean.high


def test_periods_in_which_a_metric_is_undefined_count_for_nobody(past: Past, courses):
    scores = past.scores(courses)
    plain = by_name(policy_regrets(courses, scores, sign=1))
    broken = dict(scores)
    for course in courses:
        step = course.steps[-1]
        old = scores[step.model, step.period]
        broken[step.model, step.period] = Score(float("nan"), np.full_like(old.drawn, np.nan), old.num_rows)
    told = by_name(policy_regrets(courses, broken, sign=1))
    assert told["never"].points[-1].metric.value is None
    assert told["never"].regret.value < plain["never"].regret.value
    assert told["never"].regret.high is not None


def test_the_same_numbers_twice(past: Past, courses):
    scores = past.scores(courses)
    assert policy_regrets(courses, scores, 1, seed=3) == policy_regrets(courses, scores, 1, seed=3)


def test_without_every_there_is_no_regret_to_it(past: Past):
    course = past.course("never")
    assert policy_regrets([course], past.scores([course]), 1)[0].regret_to_every is None


def test_a_wilder_past_gives_a_wider_interval(past: Past, courses):
    calm = by_name(policy_regrets(courses, past.scores(courses, noise=0.001), 1))["never"].mean
    wild = by_name(policy_regrets(courses, past.scores(courses, noise=0.1), 1))["never"].mean
    assert wild.high - wild.low > calm.high - calm.low


def standing(policy: str, regret: tuple[float, float, float], cost: float) -> PolicyRegret:
    value, low, high = regret
    return PolicyRegret(
        policy=policy,
        points=[],
        mean=Estimate(value=0.7),
        regret=Estimate(value=value, low=low, high=high),
        loops=0,
        won=0,
        lost=0,
        failed=0,
        device_seconds=cost,
    )


BEST = standing("monthly", (0.0, 0.0, 0.0), 90)
NEAR = standing("decay", (0.001, -0.002, 0.004), 20)
FAR = standing("never", (0.05, 0.04, 0.06), 0)


@pytest.mark.parametrize(("margin", "policy"), [(0.005, "decay"), (0.0, "monthly"), (0.1, "never")])
def test_the_cheapest_that_is_shown_to_be_within_the_margin_is_recommended(margin: float, policy: str):
    assert recommended([FAR, BEST, NEAR], margin).policy == policy


def test_a_policy_alone_is_recommended():
    assert recommended([FAR], 0.0).policy == "never"


def test_to_json_and_back():
    found = made_backtest()
    assert Backtest.model_validate_json(found.model_dump_json()) == found


def test_courses_by_name():
    found = made_backtest()
    assert found.course("decay").policy == "decay"
    with pytest.raises(StopIteration):
        found.course("yearly")


def test_the_summary_names_the_recommended_policy_and_its_cost():
    found = made_backtest()
    assert found.recommended == "decay"
    assert found.summary == (
        "Take decay: mean accuracy 0.7797, regret 0, at most 0 by the interval; 1 loop, 10 device-seconds."
    )


def test_policies_that_had_the_same_champions_are_alike():
    assert made_backtest().alike() == [["never"], ["monthly", "every"], ["decay"]]
