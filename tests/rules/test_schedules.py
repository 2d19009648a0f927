"""The rule: a schedule that a spec may have means the same to Prefect, which runs it, and to all else that reads it.

A spec refuses the lines that Prefect's croniter and our cronsim read in two ways.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime

import pytest
from prefect.server.schemas.schedules import CronSchedule

from flows.prefect.deployments import _schedule
from models.project_spec.schedule import Schedule, parse

AFTER = datetime(2026, 3, 27, 11, 7, 1, tzinfo=UTC)
COUNT = 4
LINES = (
    "*/15 * * * *", "30 2 * * *", "0 3 * * MON", "30 6 1,15 * *", "0 0 L * *", "0 0 1 * 1", "0 0 1-31/2 * 1",
    "0 0 * * 7", "0 0 * * 5-7", "0 0 * * 0-7", "5/15 * * * *", "0 0 * * */2", "0 0 */2 * *", "0 0 29 2 *",
    "0 0 * JAN MON-FRI", "0 0 * * 1#2", "1-59/2 * * * *", "0 */7 * * *", "0 1-3 * * *", "@weekly",
    "0 0 */2 * 1", "0 0 1 * */2", "0 0 * * 2-2", "0 9-9 * * *", "59/2 5 * * *", "0 23/1 * * *", "0 0 * * 5/1",
    "0 0 * * 1,1#2",
)  # fmt: skip


def _drawn(seed: int, num_lines: int) -> list[str]:
    """Return random cron lines, most of which are odd."""
    draw = random.Random(seed)

    def part(low: int, high: int) -> str:
        first = draw.randint(low, high - 1)
        span, step = f"{first}-{draw.randint(first, high)}", draw.randint(1, 6)
        return draw.choice(["*", "*", str(first), span, f"*/{step}", f"{span}/{step}", f"{first}/{step}", str(high)])

    def field(low: int, high: int) -> str:
        return ",".join(part(low, high) for _ in range(draw.choice([1, 1, 1, 2])))

    ends = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    return [" ".join(field(*end) for end in ends) for _ in range(num_lines)]


def _ours(schedule: Schedule) -> list[float]:
    times = [AFTER.timestamp()]
    for _ in range(COUNT):
        times.append(schedule.next(times[-1]))
    return times[1:]


def _prefects(schedule: Schedule) -> list[float]:
    given = _schedule(schedule, True)
    dates = asyncio.run(CronSchedule(cron=given.cron, timezone=given.timezone).get_dates(COUNT, start=AFTER))
    return [date.timestamp() for date in dates]


def _assert_same(lines: list[str]) -> int:
    num_accepted = 0
    for line in lines:
        try:
            schedule = parse(line)
        except ValueError:
            continue
        num_accepted += 1
        assert _prefects(schedule) == _ours(schedule), line
    return num_accepted


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_refused_or_means_the_same(line: str) -> None:
    _assert_same([line])


def test_random_lines_mean_the_same() -> None:
    assert _assert_same(_drawn(0, 60)) > 10


@pytest.mark.soak
def test_many_random_lines_mean_the_same() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    assert _assert_same(_drawn(seed, 3000)) > 500
