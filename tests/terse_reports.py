"""A worker tells pytest's controller of a test what the controller shows, and no more.

Six messages a test took .8 ms of CPU at both ends together, seven seconds a whole run.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

SHOWN_S = 0.5
"""A setup or end that takes longer is among the durations that are shown."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run the test; a setup or end that was quick and passed is not reported."""
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed or report.duration > SHOWN_S:
            item.ihook.pytest_runtest_logreport(report=report)
    return True
