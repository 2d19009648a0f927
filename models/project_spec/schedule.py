"""The next time of a schedule of the spec: cron lines, intervals and iCalendar rules, in a time zone.

Prefect runs the schedules. The clock of a backtest and the page of the projects read the same text without Prefect, so
only forms that both read in the same way are accepted: Prefect reads cron lines by croniter, this module by cronsim.
What is left is a time that the clocks skip in spring: Prefect begins that run up to two hours earlier.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal
from zoneinfo import ZoneInfo, available_timezones

if TYPE_CHECKING:
    from dateutil.rrule import rrule, rruleset

FORMS = '"0 3 * * 1" (cron: Mondays at 3), "every 15 minutes", "every 7 days" or "RRULE:FREQ=MONTHLY;BYMONTHDAY=1"'
MONDAY = datetime(2020, 1, 6)  # midnight in the schedule's time zone; intervals are counted from here
SECONDS = {"second": 1, "minute": 60, "hour": 3600}
DAYS = {"day": 1, "week": 7}
LEAST_INTERVAL_S = 10
EVERY = re.compile(r"every\s+(?:(\d{1,6})\s+)?(second|minute|hour|day|week)s?", re.IGNORECASE)
NAMED = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}
LAST = (59, 23, 31, 12, 7)
"""The last value of each field of a cron line."""
FIELDS = "minute hour day-of-month month day-of-week"
GAP = timedelta(hours=3)  # longer than any change of the clock


@dataclass(frozen=True)
class Schedule:
    """A parsed schedule: `text` is a cron line, or the lines of an iCalendar rule; empty for an interval.

    Intervals of days and weeks are rules, which keep the local hour when the clocks change. Intervals of seconds,
    minutes and hours have a fixed length. Both are counted from Monday, 6 January 2020, midnight in the time zone.
    """

    kind: Literal["cron", "interval", "rrule"]
    text: str
    timezone: str = "UTC"
    interval_s: float = 0.0

    @property
    def anchor(self) -> float:
        """The Unix time from which an interval is counted."""
        return MONDAY.replace(tzinfo=ZoneInfo(self.timezone)).timestamp()

    @property
    def shown(self) -> str:
        """The schedule in one line, for people."""
        rule = f"every {self.interval_s:g} s" if self.kind == "interval" else self.text.splitlines()[-1]
        return f"{rule} ({self.timezone})"

    def next(self, after: float) -> float:
        """Return the first time strictly later than `after`, in Unix seconds; infinity if the rule has ended."""
        if self.kind == "interval":
            return self.anchor + (math.floor((after - self.anchor) / self.interval_s) + 1) * self.interval_s
        if self.kind == "cron":
            return next((time for time in self._by_cron(after) if time > after), math.inf)
        return self._by_rule(after)

    def _by_cron(self, after: float) -> Iterator[float]:
        from cronsim import CronSim

        return (time.timestamp() for time in CronSim(self.text, datetime.fromtimestamp(after, self._zone)))

    def _by_rule(self, after: float) -> float:
        """Return the next time of a rule; the local clock may skip or repeat hours, so its order is not time order."""
        start = datetime.fromtimestamp(after, self._zone).replace(tzinfo=None) - GAP
        near = self._rule.xafter(start)
        first = next((local for local in near if self._unix(local) > after), None)
        if first is None:
            return math.inf
        rest = itertools.takewhile(lambda local: local < first + GAP, near)
        return min(time for local in (first, *rest) if (time := self._unix(local)) > after)

    def _unix(self, local: datetime) -> float:
        return local.replace(tzinfo=self._zone).timestamp()

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    @cached_property
    def _rule(self) -> rrule | rruleset:
        from dateutil.rrule import rrulestr

        return rrulestr(self.text, dtstart=MONDAY, cache=True)


def parse(text: str, timezone: str = "UTC") -> Schedule:
    """Parse a schedule.

    Raises:
        ValueError: The schedule or the time zone is not valid; the message names the actual and the expected value.
    """
    check_timezone(timezone)
    rule = " ".join(text.split()) if not _is_rule(text) else text.strip()
    every = EVERY.fullmatch(rule)
    if every:
        return _interval(text, int(every[1] or 1), every[2].lower(), timezone)
    if _is_rule(rule):
        return _rule(rule, timezone)
    return _cron(text, NAMED.get(rule.lower(), rule), timezone)


def unix_time(text: str) -> float:
    """Parse an ISO date or time into Unix seconds; without a time zone it is UTC.

    Raises:
        ValueError: The text is no date.
    """
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def check_timezone(name: str) -> str:
    """Return the name of a time zone if it exists.

    Raises:
        ValueError: It does not exist; the message names the nearest time zone.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        zones = available_timezones()
    else:
        return name
    lower = {zone.rpartition("/")[2].lower(): zone for zone in zones} | {zone.lower(): zone for zone in zones}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    cure = f"did you mean {lower[near[0]]!r}?" if near else "such as UTC or Europe/Vienna"
    raise ValueError(f"got time zone {name!r}, expected one of the IANA database: {cure}")


def _is_rule(text: str) -> bool:
    return text.strip().upper().startswith(("RRULE:", "DTSTART"))


def _interval(text: str, count: int, unit: str, timezone: str) -> Schedule:
    if unit in DAYS and count:
        return Schedule(
            "rrule", f"DTSTART:{MONDAY:%Y%m%dT%H%M%S}\nRRULE:FREQ=DAILY;INTERVAL={count * DAYS[unit]}", timezone
        )
    seconds = count * SECONDS.get(unit, 0)
    if seconds < LEAST_INTERVAL_S:
        raise ValueError(f"got schedule {text!r}, expected an interval of at least {LEAST_INTERVAL_S} seconds")
    return Schedule("interval", "", timezone, float(seconds))


def _rule(text: str, timezone: str) -> Schedule:
    if re.search(r"FREQ=(SECOND|MINUTE)LY", text, re.IGNORECASE):
        raise ValueError(f'got schedule {text!r}: for less than an hour say it as "every 15 minutes"')
    if "DTSTART" not in text.upper():
        text = f"DTSTART:{MONDAY:%Y%m%dT%H%M%S}\n{text}"
    schedule = Schedule("rrule", text, timezone)
    try:
        first = next(iter(schedule._rule), None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"got schedule {text!r}, which is no iCalendar rule ({error}), expected such as {FORMS}"
        ) from None
    if first is None:
        raise ValueError(f"got schedule {text!r}, which never comes round, expected such as {FORMS}")
    if first.tzinfo is not None:
        raise ValueError(f"got schedule {text!r}: its DTSTART runs on the clock of `retrain.timezone`: drop TZID and Z")
    return schedule


def _cron(text: str, line: str, timezone: str) -> Schedule:
    from cronsim import CronSim, CronSimError

    fields = line.split()
    if len(fields) != 5:
        raise ValueError(f"got schedule {text!r}, expected {FORMS}")
    _refuse_doubtful(text, fields)
    try:
        for read in (line, " ".join([*fields[:4], "*"])):  # croniter finds no day of the week beside 31 September
            next(CronSim(read, datetime(2020, 1, 6, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        field = str(error).lower().removeprefix("bad ") or "date that never comes"
        raise ValueError(f"got schedule {text!r} with a bad {field}, expected {FIELDS}, such as {FORMS}") from None
    return Schedule("cron", line, timezone)


def _refuse_doubtful(text: str, fields: list[str]) -> None:
    """Refuse what croniter and cronsim read in two ways."""
    if "W" in fields[2].upper() or "L" in fields[4].upper():
        raise ValueError(f"got schedule {text!r}: W, and L as a day of the week, are read by no two programs alike")
    alone = [match for field, last in zip(fields, LAST, strict=True)
             if (match := re.search(rf"(?:^|,)((\w+)-\2|(0*{last})/\d+)(?:[,/]|$)", field))]  # fmt: skip
    if alone:
        what, cure = alone[0][1], alone[0][2] or alone[0][3]
        raise ValueError(
            f"got schedule {text!r}: {what} is one value or all, by the program that reads it: write {cure}"
        )
    if re.search(r"(?:^|,)\w+/", fields[4]):
        raise ValueError(
            f"got schedule {text!r}: steps from a day of the week on, {fields[4]}, end at another day in each program: "
            "write the days, such as 1,3,5"
        )
    if "#" in fields[4] and "," in fields[4]:
        raise ValueError(
            f"got schedule {text!r}: {fields[4]} is read by no two programs alike: write one day with #, or days alone"
        )
    days = [fields[2], fields[4]]
    if "*" not in days and any("*" in field for field in days):
        raise ValueError(
            f"got schedule {text!r}: with * in one of the two fields of days, some programs want both to fit and some "
            f"one of them: write {' and '.join(field for field in days if '*' in field)} as numbers, such as 1,3,5"
        )
