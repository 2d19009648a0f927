"""The blocks of watching and retraining: what cannot be meant is refused with the line and the cure."""

from pathlib import Path

import pytest

from models.errors import UsageError
from models.project_spec.reader import read_spec

SPEC = "data:\n  source: data.csv\n  target: y\n"


@pytest.mark.parametrize(
    ("block", "line", "words"),
    [
        ("retrain:\n  schedule: 0 25 * * *\n", 5, r"retrain.schedule: got schedule '0 25 \* \* \*' with a bad hour"),
        ("retrain:\n  timezone: Europe/Vienn\n", 5, "retrain.timezone: .*did you mean 'Europe/Vienna'"),
        ("monitor:\n  window: 500\n  schedule: now and then\n", 6, "monitor.schedule: .*every 15 minutes"),
        ("monitor:\n  alarms: 3\n", 4, "monitor: alarms 3 of 2 windows can never be"),
        ("monitor:\n  keep_days: 0\n", 5, "monitor.keep_days: got 0, expected a number >= 1"),
        ("monitor:\n  psi: 0.5\n", 4, "monitor: psi_strong 0.2 is under psi 0.5"),
        ("monitor:\n  accepted: yesterday\n", 5, "monitor.accepted: got 'yesterday', expected an ISO date or time"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, block: str, line: int, words: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(SPEC + block)
    with pytest.raises(UsageError, match=f"project.yaml:{line}: {words}"):
        read_spec(path, (), "project.yaml")


@pytest.mark.parametrize("text", ["1970-01-03", "1970-01-03T00:00:00Z", "'1970-01-03T01:00+01:00'", "1970-01-03 00:00"])
def test_accepted_may_be_a_date_or_a_time(tmp_path: Path, text: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(f"{SPEC}monitor:\n  accepted: {text}\n")
    assert read_spec(path).monitor.accepted_at == 2 * 86_400.0


def test_a_schedule_may_be_none_and_a_time_zone_any_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(f"{SPEC}monitor:\n  schedule: null\nretrain:\n  schedule: 0 3 * * MON\n  timezone: Asia/Tokyo\n")
    spec = read_spec(path)
    assert spec.monitor.schedule is None
    assert (spec.retrain.schedule, spec.retrain.timezone) == ("0 3 * * MON", "Asia/Tokyo")
