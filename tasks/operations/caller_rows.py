"""Rows that a Python process hands over (`import loopline`): the source of a project, or rows to predict in memory."""

from __future__ import annotations

import filecmp
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from models.cores import usable_cores
from models.errors import UsageError
from models.files import SPEC_FILE, storing, whole_file
from models.inference.loaded_model import LoadedModel
from models.project_spec.blocks import NAME_PATTERN, Spec
from tasks.host.workspace import Project, Workspace
from tasks.loop.history import running
from tasks.mlflow.model_cache import CachedModel, cached_version
from tasks.operations.predict import predict, predict_unlogged


def project_of_rows(
    workspace: Workspace, name: str | None, rows: Path, target: str | None, *, is_frame: bool
) -> Project:
    """Return the project whose source is a file of rows: a new one, or the one that is there, with these rows now.

    The file of a frame is copied into the project. A file that did not change stays untouched.

    Args:
        workspace: Of the project.
        name: The project; None: made of `target`.
        rows: A table, a folder of tables, or a text.
        target: The column to predict, or several separated by commas; None: as the project's spec says.
        is_frame: Whether the file lies in a temporary folder.

    Raises:
        UsageError: The name is invalid, a new project has no target, or the project predicts or reads something else.
        DataError: The file cannot be read.
    """
    from tasks.operations.scaffold import make_project, origin_of

    name = name or _name_of(target)
    folder = workspace.root / "projects" / name
    if (folder / SPEC_FILE).is_file():
        project = workspace.project(name)
        _replace(project, rows, target, is_frame=is_frame)
        return project
    origin = origin_of(workspace, str(rows))
    if target is None and origin.columns:
        raise UsageError(
            f"target: got none for the new project {name!r}, expected one of {', '.join(origin.columns)}: say "
            f"target={origin.guessed_target!r}"
        )
    return make_project(workspace, name, origin, target, copied=is_frame or None)


def _name_of(target: str | None) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", (target or "").lower()).strip("-")
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"name: got none, and none follows from target {target!r}: give one, such as name='churn'")
    return name


def _replace(project: Project, rows: Path, target: str | None, *, is_frame: bool) -> None:
    """Make a file the source of a project that is there, by its copy in the project's folder."""
    data = project.spec().data
    if target is not None and (targets := [part.strip() for part in target.split(",")]) != data.targets:
        raise UsageError(
            f"{project.shown_spec}: predicts {', '.join(data.targets)}, got target {', '.join(targets)}: leave it "
            "out, or give another `name`"
        )
    copy = project.folder / rows.name
    if not copy.is_file():
        if not is_frame and data.source == str(rows.resolve()):
            return
        raise UsageError(
            f"{project.shown_spec}: reads its rows from {data.source}, got {'a frame' if is_frame else rows}: leave "
            "the rows out to read that, or give another `name`"
        )
    with storing(rows):
        is_same = copy.samefile(rows) or filecmp.cmp(copy, rows, shallow=False)
    if not is_same:
        name = project.spec().name
        if loop_id := running(project.state(name)):  # which may not have read its rows yet
            raise UsageError(f"a loop of {name} runs already ({loop_id}): wait for it, or end it")
        with whole_file(copy) as temporary:
            shutil.copyfile(rows, temporary)


@dataclass(frozen=True)
class ModelInMemory:
    """A version that answers without a trace."""

    project: Project
    spec: Spec
    cached: CachedModel
    model: LoadedModel

    @property
    def inputs(self) -> list[str]:
        """The columns that it reads."""
        return [*self.model.schema.columns]

    def predict(self, rows: Path, out: Path | None) -> dict[str, Any]:
        """Predict every row of a file or folder; nothing is logged.

        Args:
            rows: CSV, Parquet, text, or a folder of such files.
            out: The Parquet file to write; None: the predictions are returned as `rows`.

        Raises:
            DataError: The model does not accept a column or value.
        """
        table, notes = predict_unlogged(self.project, self.spec, self.cached, self.model, rows)
        if out is None:
            return {"rows": table.to_pylist(), "notes": notes}
        pq.write_table(table, out)
        return {"out": str(out), "notes": notes}


_models: dict[tuple[Path, str], ModelInMemory] = {}


def loaded(project: Project, version: str) -> ModelInMemory:
    """Return a version of a project, in memory from the first call on.

    Args:
        project: The project.
        version: `champion`, another alias, or a number. Which version an alias names is looked up each time.

    Raises:
        UsageError: There is no such version.
        StoreError: It cannot be fetched, or does not run here.
    """
    if model := _models.get((project.folder, version)):
        return model
    spec = project.spec()
    cached = cached_version(project.workspace, spec.name, version)
    place = (project.folder, cached.number)
    if place not in _models:
        graph = LoadedModel(spec.name, cached.number, cached.folder, threads=usable_cores())
        _models[place] = ModelInMemory(project, spec, cached, graph)
    return _models[place]


def predict_logged(
    project: Project, version: str, rows: Path, out: Path | None, id_column: str | None
) -> dict[str, Any]:
    """Predict as `loopline predict` does, each row logged once; see `ModelInMemory.predict`."""
    with tempfile.TemporaryDirectory() as folder:
        target = out or Path(folder) / "predictions.parquet"
        summary = predict(project, project.spec(), rows, target, id_column=id_column, version=version)
        answer = {"out": str(out)} if out else {"rows": pq.read_table(target).to_pylist()}
    return {**answer, "notes": summary["notes"]}
