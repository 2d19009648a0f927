"""The conformance suite of families: what training, export and serving rely on, of a row `FAMILY`, by task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from models.estimators.source import row_of_source
from models.kinds.task import TASK_NAMES, Task
from models.project_spec.conformance import READ, Claim

PROBED = "equal fits have equal bytes, and the graph answers as the fitted model does"


def family_claims(reference: str, base: Path) -> Iterator[Claim]:
    """Yield the claims on a row `FAMILY`, for each of its tasks: the probe of `loopline plan --probe`, on drawn rows.

    Raises:
        UsageError: The row is none.
    """
    row = row_of_source(reference, base)
    yield Claim(READ, lambda: None)
    for task in (name for name in TASK_NAMES if name in row.tasks):
        yield Claim(f"{task}: {PROBED}", partial(_probe, reference, base, task))


def _probe(reference: str, base: Path, task: Task) -> None:
    from models.estimators.probe import probe_tasks

    probe_tasks(reference, str(base), [task], {})
