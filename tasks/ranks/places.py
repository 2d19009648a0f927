"""`places.yaml` of the workspace: the engines that `train.on` and `search.on` name, such as a Slurm partition.

The entry `pool` is the place of the flow runs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from models.errors import DataError, UsageError, did_you_mean
from models.project_spec.block import SpecBlock
from models.project_spec.blocks import Spec, Train
from models.project_spec.parallel_dims import check_gpus
from models.project_spec.reader import place_of, read_document
from models.project_spec.row_source import is_row
from models.project_spec.search import Search
from models.training.spec_check import read_checked
from models.validation.source_check import check_source
from tasks.host.database import is_shared
from tasks.host.server_access import elsewhere
from tasks.host.store_addresses import PREFECT_API, STATE_URL
from tasks.host.workspace import Project, Workspace
from tasks.ranks.kubernetes import Kubernetes
from tasks.ranks.launcher import Place
from tasks.ranks.own_place import LAUNCHER, read_own_place
from tasks.ranks.slurm import Slurm
from tasks.ranks.torchrun import Torchrun

HERE = "here"
PLACES_FILE, PLACES = "places.yaml", "LOOPLINE_PLACES"
ENGINES: dict[str, type[Slurm | Kubernetes | Torchrun]] = {
    "slurm": Slurm,
    "kubernetes": Kubernetes,
    "torchrun": Torchrun,
}
Engine = TypeVar("Engine", bound=SpecBlock)
GUIDE = "see docs/how-to/slurm.md"
POOL, GUIDE_PODS = "pool", "see docs/how-to/containers.md"


def find_place(workspace: Workspace, train: Train) -> Place | None:
    """Return the engine that `train.on` names, or None for this machine.

    The engine itself is not asked; see `check_place`.

    Raises:
        UsageError: There is no such place, its entry is wrong, or this machine lacks the engine's programs.
    """
    if train.on == HERE and train.num_nodes[0] > 1:
        raise UsageError(
            f"train.nodes: got {train.nodes}, expected 1 where train.on is {HERE}: name a place of {PLACES_FILE} "
            f"with several machines ({GUIDE})"
        )
    return _find(workspace, "train.on", train.on)


def find_search_place(workspace: Workspace, search: Search) -> Place | None:
    """Return the engine that `search.on` names, or None for this machine.

    Raises:
        UsageError: As of `find_place`, or the engine does not start jobs by itself.
    """
    place = _find(workspace, "search.on", search.on)
    if place is not None and not place.starts_jobs:
        raise UsageError(
            f"search.on: got {search.on!r}, a place of the engine {place.engine}, where a person starts each job, "
            f"expected {HERE} or a place with a scheduler ({GUIDE})"
        )
    return place


def find_pool_place(workspace: Workspace) -> Kubernetes | None:
    """Return the engine whose pods carry out the flow runs that workers start, or None for the workers' own machines.

    Raises:
        UsageError: The entry `pool` is wrong, its engine has no pods, or the pods cannot reach the workspace's stores.
    """
    path = places_file(workspace)
    places = read_document(path) if path.is_file() else {}
    if POOL not in places:
        return None
    values, where = _values(path, POOL, places[POOL]), place_of(POOL, path)
    if values["engine"] != "kubernetes":
        raise UsageError(
            f"{where}: {POOL}.engine: got {values['engine']!r}, expected kubernetes, whose pods carry out flow runs: "
            f"remove the entry to carry them out on the machines of the workers ({GUIDE_PODS})"
        )
    place = _validated(path, POOL, values, Kubernetes)
    missing = [
        name
        for name, is_there in ((STATE_URL, is_shared()), (PREFECT_API, "prefect" in elsewhere(workspace)))
        if not is_there
    ]
    if missing:
        raise UsageError(
            f"{where}: {POOL}: flow runs in pods need {' and '.join(missing)}, which the pods can reach: set "
            f"{'it' if len(missing) == 1 else 'them'}, or remove the entry ({GUIDE_PODS})"
        )
    return place


def check_places(workspace: Workspace, spec: Spec) -> None:
    """Let the engines of the places that a spec names judge them; an engine that is away makes this take seconds.

    Raises:
        UsageError: As of `find_place` and `find_search_place`, or an engine refuses the place.
    """
    train, trial = find_place(workspace, spec.train), find_search_place(workspace, spec.search)
    if train is not None:
        train.check_nodes(spec.train.num_nodes)
    judged = {spec.train.on: train, **({spec.search.on: trial} if spec.search.trials else {})}
    for name, place in judged.items():
        if place is None:
            continue
        try:
            if place.gpus is not None:
                check_gpus(spec.train.ranks, place.gpus, "a node of this place")
            place.check()
        except UsageError as error:
            raise UsageError(f"{place_of(name, places_file(workspace))}: {name}: {error}") from error


def _find(workspace: Workspace, key: str, name: str) -> Place | None:
    if name == HERE:
        return None
    path = places_file(workspace)
    places = read_document(path) if path.is_file() else {}
    if name not in places:
        names = (*places, HERE)
        cure = did_you_mean(name, names, f"expected one of {', '.join(names)}")
        raise UsageError(f"{key}: got {name!r}, {cure}, or a new entry of {path} ({GUIDE})")
    place = _read(path, name, places[name])
    missing = [program for program in place.programs if not shutil.which(program)]
    if missing:
        raise UsageError(
            f"{place_of(name, path)}: {name}: this machine has no {missing[0]}: run on a machine with the programs of "
            f"{place.engine}, such as a login node, or train on another place"
        )
    return place


def checked_spec(
    project: Project, overrides: Sequence[str] = (), *, is_for_here: bool = True, needs_source: bool = False
) -> Spec:
    """Return a project's spec, checked together with the place that it names.

    With `is_for_here` false, nothing is to be trained: neither this machine nor the place is checked. With
    `needs_source`, a local source must be there; a loop goes without, and records at ingest that it is away.

    Raises:
        UsageError: The file is not a spec, its run would fail, or its place is unknown or refused by its engine.
        DataError: The source has no such column, or its header cannot be read.
    """
    path, shown_as = project.spec_path, project.shown_spec
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    spec = read_checked(path, overrides, shown_as, is_for_here=is_for_here, visible_gpus=visible)
    try:
        if needs_source:
            check_source(spec.data, project.folder)
        if is_for_here:
            check_places(project.workspace, spec)
    except (UsageError, DataError) as error:
        where = place_of(str(error).partition(":")[0], path, overrides, shown_as)
        if not where:
            raise
        raise type(error)(f"{where}: {error}") from error
    return spec


def places_file(workspace: Workspace) -> Path:
    """Return the path of `places.yaml`, which need not be there."""
    return Path(os.environ.get(PLACES) or workspace.root / PLACES_FILE)


def _read(path: Path, name: str, document: object) -> Place:
    values = _values(path, name, document)
    engine = str(values["engine"])
    if engine in ENGINES:
        return _validated(path, name, values, ENGINES[engine])
    try:
        return read_own_place(f"{name}.engine", values, path.parent)
    except UsageError as error:
        raise UsageError(f"{place_of(str(error).partition(':')[0], path)}: {error}") from error


def _values(path: Path, name: str, document: object) -> dict[str, Any]:
    """Return the values of an entry whose engine is one of ours or a row.

    Raises:
        UsageError: It is neither.
    """
    values = document if isinstance(document, dict) else {}
    engine = values.get("engine")
    if not isinstance(engine, str) or not (engine in ENGINES or is_row(engine, LAUNCHER.name)):
        where = place_of(f"{name}.engine", path)
        expected = f"one of {', '.join(ENGINES)}, or ./file.py:{LAUNCHER.name} of your own"
        raise UsageError(f"{where}: {name}.engine: got {engine!r}, expected {expected} ({GUIDE})")
    return values


def _validated(path: Path, name: str, values: dict[str, Any], kind: type[Engine]) -> Engine:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(map(str, (name, *detail["loc"])))
        raise UsageError(f"{place_of(key, path)}: {key}: {_complaint(detail, kind)}") from error


def _complaint(detail: ErrorDetails, kind: type[SpecBlock]) -> str:
    if detail["type"] == "extra_forbidden":
        key = str(detail["loc"][-1])
        expected = f"expected one of {', '.join(kind.model_fields)}"
        return f"unknown key: {did_you_mean(key, kind.model_fields, expected)}"
    if detail["type"] == "missing":
        return "missing; it is required"
    expected = re.sub("^(Input should be|Value error,) ", "", detail["msg"])
    return f"got {detail['input']!r}, expected {expected}"
