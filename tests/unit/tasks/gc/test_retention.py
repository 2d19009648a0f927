"""How long things stay is said by the environment."""

import pytest

from models.errors import UsageError
from tasks.gc.retention import (
    DVC_REMOTE,
    KEEP,
    KEEP_CHAMPIONS,
    KEEP_HISTORY,
    KEEP_LOOPS,
    champion_days,
    history_days,
    keep_days,
    kept_loops,
    owns_remote,
)


def test_how_long_is_said_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP, raising=False)
    assert keep_days() == 14
    monkeypatch.setenv(KEEP, "0.5")
    assert keep_days() == 0.5
    for wrong in ("-1", "a week", "nan"):
        monkeypatch.setenv(KEEP, wrong)
        with pytest.raises(UsageError, match=f"{KEEP}: got '{wrong}', expected a number of days"):
            keep_days()


def test_the_history_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_HISTORY, raising=False)
    assert history_days() == 90
    monkeypatch.setenv(KEEP_HISTORY, "no")
    with pytest.raises(UsageError, match=f"{KEEP_HISTORY}: got 'no', expected a number of days, such as 90"):
        history_days()


def test_loops_have_a_number_and_champions_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP_LOOPS)
    assert (kept_loops(), champion_days()) == (30, float("inf"))
    monkeypatch.setenv(KEEP_LOOPS, "inf")
    monkeypatch.setenv(KEEP_CHAMPIONS, "never")
    assert kept_loops() > 1e6
    with pytest.raises(UsageError, match=f"{KEEP_CHAMPIONS}: got 'never', expected a number of days, such as 365"):
        champion_days()


def test_a_remote_is_our_own_only_by_that_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not owns_remote()
    monkeypatch.setenv(DVC_REMOTE, "own")
    assert owns_remote()
    monkeypatch.setenv(DVC_REMOTE, "yes")
    with pytest.raises(UsageError, match=f"{DVC_REMOTE}: got 'yes', expected own"):
        owns_remote()
