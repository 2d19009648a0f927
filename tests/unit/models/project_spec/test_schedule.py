"""Schedules: what they mean, over changes of the clock too, and what is refused."""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.project_spec.schedule import Schedule, check_timezone, parse, unix_time

VIENNA = "Europe/Vienna"
TEXTS = (
    "*/15 * * * *",
    "30 2 * * *",
    "0 3 * * 1",
    "0 0 1 * *",
    "0 0 L * *",
    "@daily",
    "every hour",
    "every 15 minutes",
    "every 90 seconds",
    "every 7 days",
    "every 2 weeks",
    "RRULE:FREQ=MONTHLY;BYMONTHDAY=1",
    "RRULE:FREQ=HOURLY;BYMINUTE=0,30",
)
ZONES = ("UTC", VIENNA, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")


def times(schedule: Schedule, after: datetime, count: int) -> list[str]:
    """The next so many times, on the schedule's own clock."""
    zone, at, found = ZoneInfo(schedule.timezone), after.timestamp(), []
    for _ in range(count):
        at = schedule.next(at)
        found.append(datetime.fromtimestamp(at, zone).strftime("%a %d %b %H:%M"))
    return found


@given(st.sampled_from(TEXTS), st.sampled_from(ZONES), st.floats(1.6e9, 1.9e9))
def test_the_next_time_is_strictly_later_and_nothing_lies_between(text: str, zone: str, after: float) -> None:
    schedule = parse(text, zone)
    first = schedule.next(after)
    assert after < first < after + 62 * 86400
    assert schedule.next((after + first) / 2) in (first, pytest.approx(first)), "asked later, the same answer"
    assert schedule.next(first) > first


@pytest.mark.parametrize("text", ["30 2 * * *", "every day", "RRULE:FREQ=DAILY"])
def test_a_daily_schedule_comes_once_a_day_when_the_clocks_change(text: str) -> None:
    for month, day in ((3, 28), (10, 24)):  # the nights before both changes of 2026
        found = times(parse(text, VIENNA), datetime(2026, month, day, tzinfo=ZoneInfo(VIENNA)), 4)
        assert len({time[:6] for time in found}) == 4
        assert len({time[-5:] for time in (found[0], found[-1])}) == 1, "the local hour is kept"


def test_hours_keep_their_length_and_days_their_hour() -> None:
    change = datetime(2026, 3, 28, 22, 30, tzinfo=ZoneInfo(VIENNA))
    assert times(parse("every 6 hours", VIENNA), change, 3) == [
        "Sun 29 Mar 00:00",
        "Sun 29 Mar 07:00",
        "Sun 29 Mar 13:00",
    ]
    assert times(parse("every 7 days", VIENNA), change, 2) == ["Mon 30 Mar 00:00", "Mon 06 Apr 00:00"]


def test_a_time_of_day_that_is_skipped_comes_right_after_the_gap() -> None:
    night = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo(VIENNA))
    assert times(parse("30 2 * * *", VIENNA), night, 2) == ["Sun 29 Mar 03:00", "Mon 30 Mar 02:30"]
    assert times(parse("RRULE:FREQ=DAILY;BYHOUR=2;BYMINUTE=30", VIENNA), night, 1) == ["Sun 29 Mar 03:30"]


def test_the_time_zone_counts() -> None:
    after = datetime(2026, 7, 1, tzinfo=UTC).timestamp()
    assert parse("0 3 * * *", VIENNA).next(after) == parse("0 1 * * *", "UTC").next(after)


def test_names_and_forms_that_mean_the_same() -> None:
    after = datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp()
    assert parse("@weekly").next(after) == parse("0 0 * * SUN").next(after) == parse("0 0 * * 0").next(after)
    assert parse("every 60 minutes").next(after) == parse(" Every  hour ").next(after)
    assert parse("every 2 weeks").next(after) == parse("every 14 days").next(after)


def test_a_rule_that_has_an_end_comes_to_it() -> None:
    schedule = parse("DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=2")
    first = schedule.next(0)
    assert datetime.fromtimestamp(first, UTC) == datetime(2026, 1, 1, 9, tzinfo=UTC)
    assert schedule.next(schedule.next(first)) == math.inf


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("61 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 9 6", "bad day-of-month"),
        ("* * * *", "every 15 minutes"),
        ("* * * * * *", "cron"),
        ("0 0 LW * *", "no two programs"),
        ("0 0 * * 5L", "no two programs"),
        ("0 0 * * 2-2", "2-2 is one value or all, by the program that reads it: write 2"),
        ("0 5,MON-MON/2 * * *", "MON-MON is one value"),
        ("59/2 * * * *", "59/2 is one value or all, by the program that reads it: write 59"),
        ("0 23/1 * * *", "write 23"),
        ("0 0 * * 5/1", "write the days, such as 1,3,5"),
        ("0 0 * * 1,1#2", "write one day with #, or days alone"),
        ("0 0 */2 * 1", r"write \*/2 as numbers, such as 1,3,5"),
        ("0 0 1 * */2", r"write \*/2 as numbers"),
        ("every 0 days", "at least 10 seconds"),
        ("every 3 seconds", "at least 10 seconds"),
        ("every fortnight", "every 7 days"),
        ("", "every 7 days"),
        ("RRULE:FREQ=SOMETIMES", "no iCalendar rule"),
        ("RRULE:", "no iCalendar rule"),
        ("RRULE:FREQ=MINUTELY", "every 15 minutes"),
        ("RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never comes round"),
        ("RRULE:FREQ=DAILY;UNTIL=20300101T000000Z", "no iCalendar rule"),
        ("DTSTART:20260101T090000Z\nRRULE:FREQ=DAILY", "drop TZID and Z"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_cure(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        schedule = parse(text)
    except ValueError:
        return
    assert schedule.next(1.7e9) > 1.7e9


def test_a_time_zone_is_one_of_the_database() -> None:
    assert check_timezone(VIENNA) == VIENNA
    for wrong, meant in (("Europe/Wien", "Europe/"), ("vienna", "Europe/Vienna"), ("europe/vienna", "Europe/Vienna")):
        with pytest.raises(ValueError, match=meant):
            check_timezone(wrong)
    for hopeless in ("", "../etc/passwd", "Europe"):
        with pytest.raises(ValueError, match="IANA"):
            check_timezone(hopeless)


@pytest.mark.parametrize("text", ["1970-01-02", "1970-01-02T00:00Z", "1970-01-02T01:00+01:00"])
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert unix_time(text) == 86400
