"""A jump of the concept in month 5: `decay` finds it, `never` suffers, `monthly` pays; and nobody sees the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.backtest.periods import LabelClock, PeriodRule, RowRange, cut_periods
from models.backtest.policies import Policy, plain
from models.backtest.replay import replay
from models.errors import TrainingError
from models.project_spec.monitor_and_retrain import Retrain
from tests.synthetic_past import Past, Synthetic


def served(course) -> list[bool]:
    """Whether each period was served by the model of the period before it."""
    return [step.age == 0 for step in course.steps]


def test_never_keeps_its_first_champion(past: Past):
    course = past.course("never")
    assert course.loops == []
    assert {step.model for step in course.steps} == {course.first.model}
    assert [step.age for step in course.steps] == list(range(10))


def test_monthly_pays_for_every_month_but_the_last(past: Past):
    course = past.course("monthly")
    assert [loop.trigger for loop in course.loops] == ["schedule"] * 9
    assert course.device_seconds == 90.0
    assert [loop.rows for loop in course.loops] == [period.stop for period in past.periods[2:-1]]
    assert len({step.model for step in course.steps}) == 10


def test_decay_finds_the_jump_and_then_rests(past: Past):
    course = past.course("decay", rows=300)
    assert [(loop.period, loop.outcome) for loop in course.loops] == [("2020-05", "promoted")]
    world = past.world()
    values = [world.value(step.model, period) for step, period in zip(course.steps, past.periods[2:], strict=True)]
    assert values == [0.8, 0.8, 0.6, *[0.8] * 7]


def test_a_champion_serves_from_the_period_after_its_loop(past: Past):
    course = past.course("decay", rows=300)
    after = {step.period: step for step in course.steps}
    assert after["2020-05"].model == course.first.model
    assert after["2020-06"].model == course.loops[0].model
    assert after["2020-06"].age == 0


def test_what_is_not_in_the_policy_is_decided_too_and_says_why(past: Past):
    course = past.course("never")
    told = [reason for decision in course.waits for reason in decision.reasons]
    assert len(course.waits) == 7
    assert all("decay begins no loop" in reason for reason in told)


def test_a_cooldown_holds_a_loop_back_and_the_next_signal_gets_it(past: Past):
    course = past.course("spec", on=["decay"], rows=100, cooldown_s=40 * 86_400.0, min_new_labels=0)
    assert [loop.period for loop in course.loops] == ["2020-05"]
    monthly = past.course("spec", schedule="0 0 1 * *", cooldown_s=40 * 86_400.0)
    assert [loop.period for loop in monthly.loops] == ["2020-04", "2020-06", "2020-08", "2020-10"]
    assert "cooldown" in monthly.waits[0].reasons[0]


def test_the_budget_of_device_seconds_is_kept(past: Past):
    weeks = cut_periods(past.clock, PeriodRule(calendar="week"))
    weekly = Policy("weekly", Retrain(schedule="every 7 days", budget_device_s=25.0, cooldown_s=0.0))
    course = replay(weekly, weeks, 8, past.clock, past.world())
    moments = [loop.at for loop in [course.first, *course.loops]]
    assert all(sum(before <= at < before + 30 * 86_400.0 for at in moments) <= 3 for before in moments)
    assert len(course.loops) > 20
    assert any("budget" in reason for decision in course.waits for reason in decision.reasons)


def test_at_most_one_loop_a_moment(past: Past):
    world = past.world(drifts=True)
    course = past.course("spec", world, on=["decay", "drift"], schedule="0 0 1 * *", cooldown_s=0.0)
    assert len(course.loops) == 9
    assert all(sum(d.loop_id is not None for d in step.decisions) == (step.loop is not None) for step in course.steps)
    assert any("one at a time" in reason for decision in course.waits for reason in decision.reasons)


def test_a_training_that_fails_leaves_the_champion(past: Past):
    world = past.world(fails_at=frozenset({past.periods[4].stop}))
    course = past.course("decay", world, rows=300)
    assert [loop.outcome for loop in course.loops] == ["failed", "promoted"]
    assert course.loops[0].reasons == ["the loss is not finite"]
    assert course.steps[3].model == course.first.model


def test_a_first_champion_that_cannot_be_trained_is_an_error(past: Past):
    with pytest.raises(TrainingError, match=r"first champion could not be trained \(the loss is not finite\)"):
        past.course("never", past.world(fails_at=frozenset({past.periods[1].stop})))


def test_a_lost_verdict_leaves_the_champion_and_no_breaker_opens(past: Past):
    from models.backtest.replay import VerdictOutcome

    class Strict(Synthetic):
        def judge(self, challenger, champion, best):
            return VerdictOutcome(champion is None, ["Not promoted."])

    course = past.course("monthly", Strict(past.clock), breaker=2, breaker_s=400 * 86_400.0)
    assert {loop.outcome for loop in course.loops} == {"kept"}
    assert len(course.loops) > 2
    assert {step.model for step in course.steps} == {course.first.model}


def test_loops_that_fail_leave_the_champion_and_open_the_breaker(past: Past):
    world = past.world(fails_at=frozenset(period.stop for period in past.periods[3:]))
    course = past.course("monthly", world, breaker=2, breaker_s=400 * 86_400.0)
    assert [loop.outcome for loop in course.loops][-2:] == ["failed", "failed"]
    assert len({step.model for step in course.steps[3:]}) == 1
    assert any("circuit breaker" in reason for decision in course.waits for reason in decision.reasons)


def test_a_loop_takes_the_newest_rows_and_the_champions_weights_and_the_first_loop_takes_neither(past: Past):
    seen = []

    class Noting(Synthetic):
        def train(self, rows: RowRange, newest: int | None, start: str | None):
            seen.append((newest, start))
            return super().train(rows, newest, start)

    course = past.course("decay", Noting(past.clock), rows=300, start="champion")
    assert seen == [(None, None), (300, course.first.model)]
    assert [(loop.rows, loop.newest) for loop in course.loops] == [(past.periods[4].stop, 300)]


def test_policies_share_a_training_of_the_same_rows(past: Past):
    world = past.world()
    past.course("monthly", world)
    monthly = set(world.trained)
    world.trained.clear()
    past.course("decay", world)
    past.course("every", world)
    assert set(world.trained) <= monthly


@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(40, 300),
    delay_days=st.floats(0, 60),
    policy=st.sampled_from(["never", "monthly", "decay", "drift", "every"]),
    newest=st.none() | st.integers(100, 200),
)
def test_nothing_is_done_with_rows_or_labels_that_were_not_known_yet(seed, num_rows, delay_days, policy, newest):
    gaps = np.random.default_rng(seed).exponential(86_400.0, num_rows)
    clock = LabelClock(np.cumsum(gaps) + 1.0e9, delay_days * 86_400.0)
    periods = cut_periods(clock, PeriodRule(calendar="month"))
    if len(periods) < 3:
        return
    world = Synthetic(clock, drifts=True)
    known: list[int] = []

    class Witness(Synthetic):
        def train(self, rows: RowRange, newest: int | None, start: str | None):
            now = periods[1 + len({period.name for _, period in self.predicted})].end
            known.append(rows.stop)
            assert (clock.times[: rows.stop] + clock.delay_s < now).all()
            return super().train(rows, newest, start)

        def monitor(self, model, since, now, labelled):
            assert (clock.times[:labelled] + clock.delay_s < now.end).all()
            assert (clock.times[: now.stop] < now.end).all()
            assert self.predicted[-1][1] is now, "predicted before it was looked at"
            return world.monitor(model, since, now, labelled)

        def value(self, model, period):
            return 0.6

    replay(plain(policy, Retrain(rows=newest)), periods, 2, clock, Witness(clock))
    assert known


def test_each_challenger_is_compared_with_the_best_champion_so_far_too(past: Past):
    """A version that is no worse than the best serves, and the best stays the reference until one is better."""
    from models.backtest.replay import VerdictOutcome

    seen = []

    class Equal(Synthetic):
        def judge(self, challenger, champion, best):
            seen.append((champion, best))
            return VerdictOutcome(True, ["Promoted."], is_best=len(seen) in (1, 4))

    course = past.course("monthly", Equal(past.clock))
    served = [course.first.model, *(loop.model for loop in course.loops)]
    assert [champion for champion, _ in seen[1:]] == served[:-1]
    assert [best for _, best in seen[1:]] == [served[0]] * 3 + [served[3]] * (len(served) - 4)
