"""A small past through the command line: the jump is found, a second replay trains nothing, a kill loses nothing."""

from __future__ import annotations

import csv
import io
import signal
import time
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from tests.running import Loopline

pytestmark = pytest.mark.e2e

SPEC = """\
goal: {metric: roc_auc}
data:
  source: days.csv
  target: y
  split: {by: time, column: day, validation: 0.05, test: 0.1}
model: {net: trees}
train: {epochs: 20}
search: {trials: 0}
judge: {margin: 0.02, min_samples: 30}
monitor: {window: 100, alarms: 1, of: 1, min_labels: 50}
retrain: {on: [decay], cooldown_s: 0, rows: 200}
"""
POLICIES = ("--policy", "never", "--policy", "decay", "--policy", "spec")


def days() -> bytes:
    """Five months, ten rows a day; in March what was yes becomes no."""
    random, out = np.random.default_rng(0), io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["day", "x", "z", "y"])
    for number in range(1520):
        day = date(2020, 1, 1) + timedelta(days=number // 10)
        x, z = random.normal(), random.normal()
        late = (x + random.normal(0, 0.5) > 0) != (day >= date(2020, 3, 1))
        writer.writerow([day.isoformat(), f"{x:.4f}", f"{z:.4f}", "yes" if late else "no"])
    return out.getvalue().encode()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Loopline:
    made = Loopline(tmp_path_factory.mktemp("past") / "home")
    made.home.mkdir()
    made.project("days", SPEC, {"days.csv": days()})
    return made


def made(home: Loopline) -> set[str]:
    return {path.parent.name for path in (home.state("days") / "backtest" / "models").glob("*/trained.json")}


@pytest.fixture(scope="module")
def killed(home: Loopline) -> set[str]:
    """What a replay that was killed after its first training had made."""
    running = home.start("backtest", "days", *POLICIES)
    while running.process.poll() is None and not made(home):
        time.sleep(0.02)
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()
    return made(home)


@pytest.fixture(scope="module")
def told(home: Loopline, killed: set[str]) -> dict[str, Any]:
    """What the replay says that goes on with it."""
    found: dict[str, Any] = home("backtest", "days", *POLICIES, "--json").ok().json
    return found


def test_killed_in_the_middle_it_goes_on_with_what_was_made(home: Loopline, killed: set[str], told: dict[str, Any]):
    assert killed
    assert killed < made(home)
    assert told["trained"] == len(made(home)) - len(killed)


def test_decay_finds_the_jump_and_never_suffers(told: dict[str, Any]):
    standing = {each["policy"]: each for each in told["policy_regrets"]}
    assert list(standing) == ["never", "decay", "spec", "every"]
    assert standing["never"]["regret"]["value"] > 0.2
    assert standing["decay"]["mean"]["value"] > standing["never"]["mean"]["value"] + 0.2
    loops = {course["policy"]: [step["loop"] for step in course["steps"] if step["loop"]] for course in told["courses"]}
    assert (loops["decay"][0]["period"], loops["decay"][0]["trigger"]) == ("2020-03", "decay")
    assert loops["decay"][0]["outcome"] == "promoted"
    assert len(loops["decay"]) < len(loops["every"]) == 3
    assert loops["never"] == []
    assert told["recommended"] != "never"


def test_a_second_replay_trains_nothing_and_says_the_same(home: Loopline, told: dict[str, Any]):
    again = home("backtest", "days", *POLICIES, "--json").ok().json
    assert again["trained"] == 0
    assert (again["courses"], again["policy_regrets"]) == (told["courses"], told["policy_regrets"])


def test_the_terminal_says_what_to_take_and_where_the_page_is(home: Loopline, told: dict[str, Any]):
    ended = home("backtest", "days", *POLICIES).ok()
    assert told["summary"] in ended.out
    assert "0 trainings made" in ended.out
    page = home.state("days") / "backtest" / "backtest.html"
    assert str(page) in ended.out
    assert page.is_file()
    assert home("status", "days", "--json").ok().json["projects"][0]["backtest"] == told["summary"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "yearly"), "expected one of never, monthly"),
        (("--period", "fortnight"), "--period: got 'fortnight'"),
        (("--from", "soon"), "--from: got 'soon'"),
        (("--from", "2031-01-01"), "choose another --from"),
        (("--label-delay", "7"), "expected a number and a unit"),
        (("-s", "data.split={by: random}", "-s", "retrain.rows=null"), "the rows have no order in time"),
        (("--policy", "calm.yaml"), "calm.yaml: no such file"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_cure(home: Loopline, arguments: tuple[str, ...], says: str):
    ended = home("backtest", "days", *arguments)
    assert ended.code == 2
    assert says in ended.err
