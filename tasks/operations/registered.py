"""What is registered: of each sort of row those of the product, of packages, and those that specs and places name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from models.errors import LooplineError
from models.estimators.rows import ROWS
from models.metrics.metrics import METRICS
from models.nets.catalogue import CATALOGUE
from models.project_spec.blocks import Spec
from models.project_spec.entry_points import GROUPS, named_rows, trouble
from models.project_spec.methods import Augment
from models.project_spec.reader import read_document, read_spec
from models.project_spec.references import is_own_code
from models.sources.schemes import SCHEMES
from models.training.families import families_of
from models.validation.expectation_arguments import EXPECTATIONS
from tasks.host.workspace import Workspace
from tasks.ranks.places import ENGINES, places_file

OURS: dict[str, tuple[str, ...]] = {
    "families": (*CATALOGUE, *ROWS),
    "sources": tuple(scheme.name for scheme in SCHEMES),
    "launchers": tuple(ENGINES),
    "metrics": tuple(METRICS),
    "expectations": tuple(EXPECTATIONS),
    "augmentations": tuple(Augment.model_fields),
}
"""The rows of the product, by sort; of estimators those whose facts it knows."""
SHOWN = 4


def registered(workspace: Workspace) -> dict[str, str]:
    """Return for each sort the rows of the product and of packages, and each reference of a project or place."""
    brought: dict[str, list[str]] = {sort: [] for sort in OURS}
    for project in workspace.projects():
        with contextlib.suppress(LooplineError):  # the check of the specs names it
            for sort, reference in _named_by(read_spec(project.spec_path)):
                brought[sort].append(f"{reference} ({project.folder.name})")
    with contextlib.suppress(LooplineError):  # a spec that names a place says what is wrong
        path = places_file(workspace)
        places = read_document(path) if path.is_file() else {}
        engines = {name: str(entry.get("engine")) for name, entry in places.items() if isinstance(entry, dict)}
        brought["launchers"] += [f"{engine} ({name})" for name, engine in engines.items() if is_own_code(engine)]
    return {sort: _shown(names, _of_packages(sort), brought[sort]) for sort, names in OURS.items()}


def clashes() -> list[str]:
    """Return why names of installed packages cannot be used in a spec, each with its cure."""
    return [reason for group in GROUPS for name in named_rows(group) if (reason := trouble(group, name))]


def _named_by(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield the references to own code or packages in a spec, each with its sort."""
    named = {
        "families": families_of(spec),
        "sources": [str(spec.data.source)],
        "metrics": [spec.goal.metric or ""],
        "augmentations": [spec.train.augment.function or ""],
    }
    for sort, references in named.items():
        yield from ((sort, reference) for reference in references if is_own_code(reference))


def _of_packages(sort: str) -> list[str]:
    group = f"loopline.{sort}"
    rows = named_rows(group) if group in GROUPS else {}
    return [f"{name} ({rows[name][0].origin})" for name in sorted(rows) if not trouble(group, name)]


def _shown(ours: tuple[str, ...], of_packages: list[str], brought: list[str]) -> str:
    further = f" and {len(ours) - SHOWN} more" if len(ours) > SHOWN else ""
    packages = f"; of packages: {', '.join(of_packages)}" if of_packages else ""
    projects = f"; of projects: {', '.join(brought)}" if brought else ""
    return f"of Loopline: {', '.join(ours[:SHOWN])}{further}{packages}{projects}"
