"""Bad input: the error says where, what, what was expected and the cure; nothing is half done, the champion stays."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.e2e.bad_input import CASES, Case
from tests.e2e.conftest import MakeHome
from tests.fault.conftest import SPEC
from tests.running import Loopline, assert_gone, assert_unlocked

pytestmark = pytest.mark.e2e

QUICK = ("-s", "search.trials=0", "-s", "train.epochs=2")


@pytest.fixture(scope="module")
def home(copy_whole: MakeHome) -> Loopline:
    """A workspace whose project `whole` has a champion."""
    return copy_whole("bad")


@pytest.fixture
def spoilt(home: Loopline, request: pytest.FixtureRequest):
    """The project with one thing wrong, put right again afterwards."""
    case: Case = request.param
    folder = home.project("whole", case.spec(), case.files)
    yield case
    for name in case.files:
        (folder / name).unlink()
    home.project("whole", SPEC)


def assert_nothing_half_done(home: Loopline) -> None:
    assert [str(path) for path in home.home.rglob(".*.tmp")] == []
    assert_unlocked(home.home, "whole")
    assert_gone(home.home)
    assert home.aliases("whole") == {"champion": 1}
    assert home.versions("whole") == [1]
    assert "RUNNING" not in home.runs().values()


@pytest.mark.parametrize(
    "spoilt", [pytest.param(case, id=case.name, marks=case.marks) for case in CASES], indirect=True
)
def test_bad_input_is_told_with_its_cure(home: Loopline, spoilt: Case):
    before = home.records("whole")
    ended = home(*spoilt.command, *(QUICK if spoilt.command[0] == "run" else ()))
    assert ended.code == spoilt.code, ended.err[-3000:]
    assert "Traceback" not in ended.err
    told = ended.err[ended.err.rindex("loopline: ") :]
    for part in spoilt.says:
        assert part in told
    assert home.records("whole").keys() >= before.keys()
    assert_nothing_half_done(home)


def test_then_the_project_has_nothing_to_train(home: Loopline):
    trained = home.record("whole", "train")
    ended = home("run", "whole").ok()
    assert home.record("whole", "train") == trained
    assert "version 1: promoted" in ended.out
    assert_nothing_half_done(home)


@pytest.mark.wide
def test_a_category_unseen_in_training_is_no_error(home: Loopline):
    """It shares the index of the unknown; the splits by time put the new island into the test rows."""
    rows = Path(home.home / "projects" / "whole" / "penguins.csv").read_text().splitlines()
    head, body = rows[0] + ",day", [f"{row},{day}" for day, row in enumerate(rows[1:])]
    body = sorted(body, key=lambda row: hash_of(row))
    body = [",".join([*row.split(",")[:-1], str(day)]) for day, row in enumerate(body)]
    body[-40:] = [row.replace("Biscoe", "Atlantis").replace("Dream", "Atlantis") for row in body[-40:]]
    spec = SPEC.replace("split: {by: stratified,", "split: {by: time, column: day,")
    home.project("unseen", spec, {"penguins.csv": "\n".join([head, *body]) + "\n"})
    assert home("run", "unseen", *QUICK, "-s", "goal.good_enough=0.1").code in (0, 3)
    assert home.versions("unseen") == [1]


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_rejected_data_is_kept_with_its_failing_rows(home: Loopline):
    rows = (home.home / "projects" / "whole" / "penguins.csv").read_text().splitlines()
    rows[5] = rows[5].replace(rows[5].split(",")[2], "-39.1", 1)
    rows[9] = rows[9].replace(rows[9].split(",")[2], "999", 1)
    spec = SPEC.replace(
        "split:", "expectations:\n    - {expect: column_values_to_be_between,"
        " arguments: {column: bill_length_mm, min_value: 0, max_value: 100}}\n  split:"
    )  # fmt: skip
    trained = home.record("whole", "train")
    home.project("whole", spec, {"penguins.csv": "\n".join(rows) + "\n"})
    ended = home("run", "whole", *QUICK)
    home.project("whole", SPEC)
    (home.home / "projects" / "whole" / "penguins.csv").unlink()
    home.project("whole", SPEC)
    assert ended.code == 3
    assert home.record("whole", "train") == trained, "it was rejected before anything was trained"
    assert "Traceback" not in ended.err
    assert "column_values_to_be_between of 'bill_length_mm' (2 rows unexpected)" in ended.err
    kept = Path(re.search(r"the failing rows are in (\S+failing_rows\.parquet)", ended.err)[1])
    assert kept.is_relative_to(home.state("whole") / "quarantine")
    assert sorted(pq.read_table(kept)["bill_length_mm"].to_pylist()) == [-39.1, 999.0]
    assert_nothing_half_done(home)
