"""How long things stay is said by the environment."""

import pytest

from models.errors import UsageError
from tasks.gc.retention import KEEP, KEEP_HISTORY, history_days, keep_days


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
