"""A pytest plugin that records the CPU-seconds of each test: `pytest -p tests.costs --costs costs.tsv`.

Counted are the test process and all its descendants, living and reaped: on a busy machine wall time says little.
A fixture's cost is counted for the first test that needs it. A process that left the tree is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--costs FILE`: lines of CPU-seconds and test, appended by every worker."""
    parser.addoption("--costs", metavar="FILE", help="append the CPU-seconds of each test to this file")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure one test with its set-up and teardown."""
    path = item.config.getoption("--costs")
    if not path:
        return (yield)
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        with Path(path).open("a") as file:
            file.write(f"{_cpu_seconds() - before:.2f}\t{item.nodeid}\n")


def _cpu_seconds() -> float:
    """What this process and its descendants have used so far."""
    me = psutil.Process(os.getpid())
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return total
