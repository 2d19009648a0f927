"""Few loops stand for many: none stays for its number alone."""

import pytest

from tasks.gc.retention import KEEP_LOOPS


@pytest.fixture(autouse=True)
def no_last_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP_LOOPS, "0")
