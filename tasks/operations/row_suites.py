"""The conformance suites of the rows that a team brings, by the capital name of the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from models.errors import UsageError
from models.estimators.family_suite import family_claims
from models.metrics.metric_suite import metric_claims
from models.metrics.own_metric import METRIC
from models.project_spec.blocks import Train
from models.project_spec.conformance import Claim, Outcome, outcomes
from models.project_spec.references import FAMILY, is_own_code
from models.project_spec.row_source import is_row
from models.sources.own import FORM as SOURCE
from models.sources.source_suite import source_claims
from tasks.host.workspace import Workspace
from tasks.ranks.launcher_suite import launcher_claims
from tasks.ranks.places import find_place
from tasks.state.workspace_id import workspace_id
from tasks.tools.sources import fetch

Suite = Callable[[str, Path], Iterator[Claim]]
"""Takes a reference and the folder from which relative files start."""
JOBS = "check-row"
"""The folder below the workspace's state for the jobs that check a launcher."""


def _source_claims(reference: str, base: Path) -> Iterator[Claim]:
    return source_claims(reference, base, lambda package: fetch(package, Workspace.find().cache / "sources"))


SUITES: dict[str, Suite] = {
    METRIC.name: metric_claims,
    SOURCE.name: _source_claims,
    FAMILY: family_claims,
}


def check_row(reference: str, base: Path) -> Iterator[Outcome]:
    """Return what becomes of each claim on a row.

    Args:
        reference: `./file.py:METRIC` or `package.module:METRIC`; of a launcher the name of a place of `places.yaml`.
        base: The folder from which the path of a file starts; the row's own folder is its project.

    Raises:
        UsageError: There is no suite for such a row, or no such place.
    """
    if not is_own_code(reference):
        return outcomes(_place_claims(reference))
    for name, suite in SUITES.items():
        if is_row(reference, name):
            return outcomes(suite(*_in_its_folder(reference, base)))
    names = ", ".join(f"./file.py:{name}" for name in SUITES)
    raise UsageError(f"got {reference!r}, expected {names}, or a place of places.yaml whose engine is your launcher")


def _in_its_folder(reference: str, base: Path) -> tuple[str, Path]:
    """Return a reference from the folder of its file, where its project's spec stands, and that folder."""
    target, _, attribute = reference.rpartition(":")
    if not target.endswith(".py"):
        return reference, base
    file = base / target
    return f"./{file.name}:{attribute}", file.parent


def _place_claims(name: str) -> Iterator[Claim]:
    workspace = Workspace.find()
    place = find_place(workspace, Train(on=name))
    if place is None or not place.starts_jobs:
        raise UsageError(f"got {name!r}, expected a place of places.yaml whose engine starts jobs by itself")
    return launcher_claims(place, workspace.state / JOBS, workspace_id(workspace.state))
