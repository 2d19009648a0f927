"""The policy: every objection told, what a person overrides, and what holds for any past."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.project_spec.monitor_and_retrain import QuietHours, Retrain
from models.triggers.policy import BUDGET_SPAN_S, decide, failures_in_a_row, quiet_until
from models.triggers.signal import Kind, PastLoop, ProjectHistory, Signal
from tests.wide import examples

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
DAY_S = 86400.0
ON = ["new_data", "decay"]


def a_signal(kind: Kind = "decay", name: str = "s1", at: float = NOW) -> Signal:
    return Signal(id=name, kind=kind, at=at, reason="roc_auc .71 is under .73")


def a_loop(ended: float, outcome: str = "promoted", **more: Any) -> PastLoop:
    name = more.pop("loop_id", f"loop-{ended:.0f}")
    facts = {"loop_id": name, "began": ended - 60, "ended": ended, "outcome": outcome, "trigger": "decay", **more}
    return PastLoop.model_validate(facts)


def a_policy(**more: Any) -> Retrain:
    return Retrain.model_validate({"on": ON, **more})


def test_a_named_trigger_retrains_and_says_why() -> None:
    decision = decide(a_policy(), a_signal(), ProjectHistory(), NOW)
    assert (decision.action, decision.reasons) == ("retrain", ["roc_auc .71 is under .73"])


def test_a_trigger_that_is_not_named_waits_but_schedule_and_person_always_may() -> None:
    assert decide(a_policy(), a_signal("drift"), ProjectHistory(), NOW).action == "wait"
    for kind in ("schedule", "person"):
        assert decide(Retrain(), a_signal(kind), ProjectHistory(), NOW).action == "retrain"


def test_every_objection_is_told_and_until_is_the_last_of_them() -> None:
    loops = [a_loop(NOW - hours * 3600, "failed", device_seconds=50.0) for hours in (30, 20, 1)]
    policy = a_policy(cooldown_s=7200, budget_device_s=100, breaker=3, breaker_s=DAY_S)
    decision = decide(policy, a_signal(), ProjectHistory(loops=loops), NOW)
    assert [reason.split(":")[0] for reason in decision.reasons] == ["cooldown", "budget", "circuit breaker"]
    assert decision.until == NOW - 20 * 3600 + BUDGET_SPAN_S
    short = decide(
        policy.model_copy(update={"min_new_labels": 5}), a_signal(), ProjectHistory(loops=loops, new_labels=3), NOW
    )
    assert "3 new labelled rows, expected 5" in short.reasons
    assert short.until is None  # nobody knows when labels come


def test_a_person_overrides_what_they_may_and_it_is_said() -> None:
    loops = [a_loop(NOW - 60 * i, "failed") for i in (3, 2, 1)]
    policy = a_policy(min_new_labels=10, ask=True, quiet={"begin": 11, "end": 13})
    decision = decide(policy, a_signal("person"), ProjectHistory(loops=loops), NOW)
    assert decision.action == "retrain"
    assert len([reason for reason in decision.reasons if reason.startswith("overridden by a person")]) == 4
    busy = decide(policy, a_signal("person"), ProjectHistory(loops=loops, running="flights-1"), NOW)
    assert busy.action == "wait"
    assert busy.reasons[0] == "loop flights-1 runs now: one at a time"
    spent = [a_loop(NOW - DAY_S, device_seconds=7.0)]
    broke = decide(a_policy(budget_device_s=5), a_signal("person"), ProjectHistory(loops=spent), NOW)
    assert broke.until == NOW - DAY_S + BUDGET_SPAN_S


def test_asking_first_is_for_all_but_persons_and_one_question_at_a_time() -> None:
    policy = a_policy(ask=True)
    assert decide(policy, a_signal(), ProjectHistory(), NOW).action == "ask"
    assert decide(policy, a_signal(), ProjectHistory(open_approval="s0"), NOW).action == "wait"
    assert decide(policy, a_signal("person"), ProjectHistory(open_approval="s0"), NOW).action == "retrain"


def test_a_signal_counts_once_and_is_answered_by_a_loop_that_began_after_it() -> None:
    past = ProjectHistory(loops=[a_loop(NOW - 9000)], signals=frozenset({"s1"}))
    assert decide(a_policy(), a_signal(), past, NOW).action == "wait"
    early = a_signal(name="s2", at=NOW - 10000)
    assert "has answered it" in decide(a_policy(), early, past, NOW).reasons[0]
    failed = ProjectHistory(loops=[a_loop(NOW - 9000, "failed")])
    assert decide(a_policy(), early, failed, NOW).action == "retrain"


def test_the_breaker_opens_after_failures_in_a_row_and_one_more_failure_opens_it_again() -> None:
    policy = a_policy(breaker=2, breaker_s=DAY_S)
    lost = [a_loop(NOW - 5 * DAY_S, "failed"), a_loop(NOW - DAY_S / 2, "failed")]
    decision = decide(policy, a_signal(), ProjectHistory(loops=lost), NOW)
    assert decision.action == "wait"
    assert decision.until == NOW + DAY_S / 2
    later = NOW + DAY_S
    assert decide(policy, a_signal(at=later), ProjectHistory(loops=lost), later).action == "retrain"
    again = [*lost, a_loop(later, "failed")]
    assert decide(policy, a_signal(at=later + 7200), ProjectHistory(loops=again), later + 7200).action == "wait"


def test_a_champion_that_stays_is_no_failure() -> None:
    policy = a_policy(breaker=1, breaker_s=DAY_S)
    kept = [a_loop(NOW - day * DAY_S / 10, "kept", trigger="schedule") for day in (5, 4, 3)]
    assert decide(policy, a_signal(), ProjectHistory(loops=kept), NOW).action == "retrain"
    assert failures_in_a_row([a_loop(1.0, "failed"), *kept]) == []


def test_a_person_closes_the_breaker_and_rejected_data_does_not_count() -> None:
    lost = [a_loop(NOW - day * DAY_S, "failed") for day in (5, 4, 3)]
    assert len(failures_in_a_row(lost)) == 3
    assert failures_in_a_row([*lost, a_loop(NOW, "promoted")]) == []
    by_person = a_loop(NOW - DAY_S, "failed", trigger="person")
    assert failures_in_a_row([a_loop(1.0, "failed", trigger="decay"), by_person]) == [by_person]
    assert len(failures_in_a_row([*lost, a_loop(NOW, "rejected")])) == 3


def test_a_loop_that_ended_in_the_future_does_not_block_for_ever() -> None:
    policy = a_policy(cooldown_s=3600, budget_device_s=10)
    skewed = ProjectHistory(loops=[a_loop(NOW + 5, device_seconds=5.0)])  # the clock was corrected by some seconds
    decision = decide(policy, a_signal(), skewed, NOW)
    assert decision.until == NOW + 3605
    assert "clock went back" in decision.reasons[0]
    years = ProjectHistory(loops=[a_loop(NOW + 10 * 365 * DAY_S, "kept", device_seconds=50.0)])
    assert decide(policy, a_signal(), years, NOW).action == "retrain"


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-21T21:59+00:00", "2026-11-22T05:00+00:00"),  # 22:59 in Vienna
        ("2026-11-21T20:59+00:00", None),
        ("2026-03-28T23:30+00:00", "2026-03-29T04:00+00:00"),  # summer time begins in the night
        ("2026-10-24T21:30+00:00", "2026-10-25T05:00+00:00"),  # and ends
    ],
)
def test_quiet_hours_are_those_of_the_time_zone(now: str, until: str | None) -> None:
    found = quiet_until(QuietHours(begin=22, end=6), "Europe/Vienna", datetime.fromisoformat(now).timestamp())
    assert found == (datetime.fromisoformat(until).timestamp() if until else None)


def test_an_hour_that_comes_twice_is_quiet_twice() -> None:
    between = datetime.fromisoformat("2026-10-25T00:30+00:00").timestamp()  # 02:30 in Vienna, the first time
    after = datetime.fromisoformat("2026-10-25T02:00+00:00").timestamp()
    assert quiet_until(QuietHours(begin=2, end=3), "Europe/Vienna", between) == after


def test_until_never_falls_into_quiet_hours() -> None:
    policy = a_policy(quiet={"begin": 13, "end": 18}, cooldown_s=7200)
    decision = decide(policy, a_signal(), ProjectHistory(loops=[a_loop(NOW - 60)]), NOW)
    assert decision.until == NOW + 6 * 3600


outcomes = st.sampled_from(["promoted", "kept", "rejected", "failed"])
loops = st.lists(
    st.builds(
        lambda ago, outcome, seconds, trigger: a_loop(
            NOW - ago, outcome, device_seconds=seconds, trigger=trigger, loop_id=f"l{ago}"
        ),
        st.floats(0, 90 * DAY_S),
        outcomes,
        st.floats(0, 1e4),
        st.sampled_from(["decay", "person"]),
    ),
    max_size=12,
).map(lambda found: sorted(found, key=lambda loop: loop.ended))
policies = st.builds(
    Retrain,
    on=st.just(ON),
    cooldown_s=st.floats(0, 10 * DAY_S),
    budget_device_s=st.none() | st.floats(1, 3e4),
    breaker=st.integers(1, 4),
    breaker_s=st.floats(0, 20 * DAY_S),
    ask=st.booleans(),
    timezone=st.sampled_from(["UTC", "Europe/Vienna", "Asia/Kathmandu"]),
)
quiets = st.none() | st.sampled_from([QuietHours(begin=22, end=6), QuietHours(begin=9, end=17)])
kinds = st.sampled_from(["decay", "new_data", "drift", "person", "schedule"])


@examples(60)
@given(policies, quiets, loops, kinds, st.floats(0, 30 * DAY_S))
def test_deciding_is_deterministic_and_always_gives_a_reason(
    policy: Retrain, quiet: QuietHours | None, before: list[PastLoop], kind: Kind, later: float
) -> None:
    policy = policy.model_copy(update={"quiet": quiet})
    past, signal = ProjectHistory(loops=before), a_signal(kind)
    decision = decide(policy, signal, past, NOW + later)
    assert decision == decide(policy, signal, past, NOW + later)
    assert decision.reasons
    assert (decision.until is None) or decision.action == "wait"


@examples(60)
@given(policies, loops, st.floats(0, 30 * DAY_S), st.floats(0, 30 * DAY_S))
def test_what_is_allowed_stays_allowed_while_nothing_happens(
    policy: Retrain, before: list[PastLoop], first: float, more: float
) -> None:
    past = ProjectHistory(loops=before)
    if decide(policy, a_signal(), past, NOW + first).action != "wait":
        assert decide(policy, a_signal(), past, NOW + first + more).action != "wait"


@examples(60)
@given(policies, quiets, loops, st.floats(0, 1, exclude_max=True))
def test_until_is_the_first_moment_at_which_it_is_weighed_otherwise(
    policy: Retrain, quiet: QuietHours | None, before: list[PastLoop], share: float
) -> None:
    policy, past = policy.model_copy(update={"quiet": quiet}), ProjectHistory(loops=before)
    decision = decide(policy, a_signal(at=NOW + 1), past, NOW + 1)
    if decision.until is not None:
        assert decide(policy, a_signal(at=NOW + 1), past, decision.until).action != "wait"
        between = NOW + 1 + share * (decision.until - NOW - 1)
        if between < decision.until:
            assert decide(policy, a_signal(at=NOW + 1), past, between).action == "wait"


@settings(max_examples=5)
@given(st.floats(0, 7200), st.floats(0, 100), st.booleans())
def test_a_storm_of_a_thousand_signals_gives_one_retrain(cooldown_s: float, loop_s: float, queued: bool) -> None:
    """Signals of one minute, weighed while the loop runs, or one after the other once it has ended."""
    policy = a_policy(cooldown_s=cooldown_s)
    past, retrained = ProjectHistory(), 0
    for number in range(1000):
        signal = a_signal("new_data", f"s{number}", NOW + number / 1000)
        now = NOW + 1 + (loop_s if queued and retrained else 0)
        decision = decide(policy, signal, past, now)
        if decision.action == "retrain":
            retrained += 1
            begun = PastLoop(loop_id="l1", began=now, ended=now + loop_s, outcome="kept", trigger="new_data")
            past = past.model_copy(update={"loops": [begun]} if queued else {"running": "l1"})
    assert retrained == 1
