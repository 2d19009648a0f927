"""The trigger policy: decides about a signal (retrain, ask a person or wait) and returns the reasons.

It is pure, so that live triggers and backtests decide with the same function.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from models.project_spec.monitor_and_retrain import QuietHours, Retrain
from models.triggers.signal import Decision, PastLoop, ProjectHistory, Signal, clock

BUDGET_SPAN_S = 30 * 86400.0
RECHECK_S = 60.0
ALWAYS = ("schedule", "person")


@dataclass(frozen=True)
class Objection:
    """A reason against a loop now; its end time, if known; and whether a person's request overrides it."""

    text: str
    until: float | None = None
    yields: bool = True


def decide(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Decision:
    """Decide about a signal. The decision lists all objections, not only the first.

    A person's request overrides all objections except a running loop, the budget, and a signal decided before.

    Args:
        policy: The project's `retrain` block.
        signal: The request for a loop.
        past: The earlier loops and signals.
        now: Unix time, seconds.
    """
    objections = [objection for check in CHECKS for objection in check(policy, signal, past, now)]
    by_person = signal.kind == "person"
    valid = [objection for objection in objections if not (by_person and objection.yields)]
    overridden = [f"overridden by a person: {objection.text}" for objection in objections if objection not in valid]
    if valid:
        reasons = [objection.text for objection in valid] + overridden
        return Decision(signal=signal, at=now, action="wait", reasons=reasons, until=_until(policy, signal, valid))
    if policy.ask and not by_person:
        return Decision(signal=signal, at=now, action="ask", reasons=[signal.reason, "retrain.ask: a person decides"])
    return Decision(signal=signal, at=now, action="retrain", reasons=[signal.reason, *overridden])


def failures_in_a_row(loops: list[PastLoop]) -> list[PastLoop]:
    """Return the loops that failed since the last verdict, newest first; a person's loop starts a new row.

    A verdict ends the row whichever it is: a champion that stays is no failure. A loop with rejected or unchanged data
    shows nothing about the next one: it neither counts nor ends the row.
    """
    row = []
    for loop in reversed(loops):
        if loop.outcome in ("promoted", "kept"):
            break
        if loop.outcome == "failed":
            row.append(loop)
        if loop.trigger == "person":
            break
    return row


def device_seconds(loops: list[PastLoop], now: float) -> float:
    """Return the device-seconds of the loops of the last 30 days."""
    return math.fsum(loop.device_seconds for loop in loops if _is_near(loop, now, BUDGET_SPAN_S))


def quiet_until(quiet: QuietHours | None, timezone: str, now: float) -> float | None:
    """Return the end of the quiet hours in Unix seconds, or None outside the quiet hours."""
    if quiet is None:
        return None
    zone = ZoneInfo(timezone)
    local = datetime.fromtimestamp(now, zone)
    if not _is_quiet(quiet, local):
        return None
    end = local.replace(hour=quiet.end, minute=0, second=0, microsecond=0, fold=0)
    if end.replace(tzinfo=None) <= local.replace(tzinfo=None):
        end += timedelta(days=1)
    until = end.timestamp()
    while until <= now or _is_quiet(quiet, datetime.fromtimestamp(until, zone)):
        until += 3600.0  # an hour that a clock change repeats is quiet both times
    return until


def _is_quiet(quiet: QuietHours, local: datetime) -> bool:
    if quiet.begin <= quiet.end:
        return quiet.begin <= local.hour < quiet.end
    return local.hour >= quiet.begin or local.hour < quiet.end


def _is_near(loop: PastLoop, now: float, span_s: float) -> bool:
    """Return whether the loop ended less than `span_s` ago.

    If a loop ended in the future, the clock was set back since. Within the span such a loop counts, so that a
    correction by a second opens no gate. Beyond the span it does not, so that a clock that was years ahead blocks no
    gate for years.
    """
    return loop.ended - span_s < now < loop.ended + span_s


def _may_act(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    if signal.kind not in ALWAYS and signal.kind not in policy.on:
        named = ", ".join(policy.on) or "nothing"
        yield Objection(f"{signal.kind} begins no loop: retrain.on names {named}", yields=False)


def _heard(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    if signal.id in past.signals:
        yield Objection(f"signal {signal.id} was decided before: it counts once", yields=False)


def _answered(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    for loop in reversed(past.loops):
        if signal.at <= loop.began <= now and loop.outcome != "failed":
            yield Objection(f"loop {loop.loop_id} began after the signal came, and so has answered it")
            return


def _running(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    if past.running is not None:
        until = now + max(policy.cooldown_s, RECHECK_S)
        yield Objection(f"loop {past.running} runs now: one at a time", until, yields=False)
    if past.open_approval is not None:
        yield Objection(f"signal {past.open_approval} already waits for a person's word")


def _cooldown(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    near = [loop for loop in past.loops[-1:] if _is_near(loop, now, policy.cooldown_s)]
    for last in near:
        until = last.ended + policy.cooldown_s
        ended = f"ended {now - last.ended:.0f} s ago" if last.ended <= now else "ended in the future (clock went back)"
        yield Objection(
            f"cooldown: loop {last.loop_id} {ended}, expected {policy.cooldown_s:g} s: until {clock(until)}", until
        )


def _labels(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    if past.new_labels < policy.min_new_labels:
        yield Objection(f"{past.new_labels} new labelled rows, expected {policy.min_new_labels}")


def _budget(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    budget, spent = policy.budget_device_s, device_seconds(past.loops, now)
    if budget is None or spent < budget:
        return
    counted = sorted((loop for loop in past.loops if _is_near(loop, now, BUDGET_SPAN_S)), key=lambda loop: loop.ended)
    seconds = [loop.device_seconds for loop in counted]
    enough = bisect_left(range(len(counted)), True, key=lambda index: math.fsum(seconds[index + 1 :]) < budget)
    until = counted[enough].ended + BUDGET_SPAN_S
    text = f"budget: {spent:.0f} of {budget:g} device-seconds are spent in 30 days: until {clock(until)}"
    yield Objection(f"{text}, or raise retrain.budget_device_s", until, yields=False)


def _breaker(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    row = failures_in_a_row(past.loops)
    if len(row) >= policy.breaker and _is_near(row[0], now, policy.breaker_s):
        until = row[0].ended + policy.breaker_s
        failed = f"{len(row)} loops in a row failed (the last: {row[0].loop_id})"
        yield Objection(f"circuit breaker: {failed}: until {clock(until)}, or a person's word", until)


def _quiet(policy: Retrain, signal: Signal, past: ProjectHistory, now: float) -> Iterator[Objection]:
    until = quiet_until(policy.quiet, policy.timezone, now)
    if policy.quiet is not None and until is not None:
        hours = f"{policy.quiet.begin}:00 to {policy.quiet.end}:00 {policy.timezone}"
        yield Objection(f"quiet hours, {hours}: until {clock(until)}", until)


Check = Callable[[Retrain, Signal, ProjectHistory, float], Iterator[Objection]]
CHECKS: tuple[Check, ...] = (_may_act, _heard, _answered, _running, _cooldown, _labels, _budget, _breaker, _quiet)


def _until(policy: Retrain, signal: Signal, objections: list[Objection]) -> float | None:
    """Return when the last objection ends, moved past the quiet hours; None if any objection has no end time."""
    ends = [objection.until for objection in objections if objection.until is not None]
    if len(ends) < len(objections):
        return None
    latest = max(ends)
    quiet = quiet_until(policy.quiet, policy.timezone, latest) if signal.kind != "person" else None
    return quiet or latest
