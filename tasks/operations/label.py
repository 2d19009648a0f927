"""Labels: stores true outcomes for predictions that exist already or are still to come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from models.data.preparation import PREPARATION_FILE, Preparation
from models.errors import DataError, UsageError
from models.feedback.columns import LABEL
from models.feedback.label_text import forms_of_labels
from models.inference.forms import with_forms
from models.project_spec.blocks import Spec
from models.validation.labels import checked_labels
from tasks.host.workspace import Project
from tasks.state.add_labels import add_labels, take_in
from tasks.state.ingest_segments import PATIENCE_S, moving, receive_held, share_labels
from tasks.state.predictions import label_store, latest_labels


def accept(
    project: Project, spec: Spec, rows: pa.Table, *, labeller: str, id_column: str = "id", display_name: str = "labels"
) -> dict[str, int]:
    """Store labels durably: all of them or none. The command line and an HTTP endpoint both call this.

    Args:
        project: The project whose predictions are labelled.
        spec: The project's spec.
        rows: A column of ids and a column named like the target or `label`; other columns and empty labels are ignored.
        labeller: Author of the labels.
        id_column: Name of the id column.
        display_name: Name of the rows in messages.

    Raises:
        DataError: A label is no class or number, an id is missing, or has two labels; nothing was stored.
        UsageError: The project was never prepared, so the valid labels are unknown; or it is a text project.
        StoreError: The disk is full, or another process keeps moving labels; nothing was stored.

    Returns:
        `taken`: added labels, of which `corrected` replace another label; `repeated`: labels already known, not stored
        again; `waiting`: added labels whose id has no prediction yet (they are matched when it comes); `empty`: rows
        without a label.
    """
    state, now = project.state(spec.name), datetime.fromtimestamp(time.time(), UTC)
    preparation = _preparation(project, spec)
    forms = forms_of_labels(preparation.target.columns, preparation.forms)
    table = checked_labels(_written(rows, forms, display_name), id_column, preparation, display_name)
    moments = pa.array([now] * table.num_rows, pa.timestamp("us", tz="UTC"))
    labels = table.append_column("at", moments).append_column("by", pa.array([labeller] * table.num_rows, pa.string()))
    with moving(state, PATIENCE_S):  # no correction may come between reading the known labels and adding new ones
        receive_held(state)  # labels that came over HTTP are older than these
        share_labels(state, labels)
        return {**take_in(state, labels), "empty": rows.num_rows - table.num_rows}


def accept_file(project: Project, spec: Spec, path: Path, *, labeller: str, id_column: str = "id") -> dict[str, int]:
    """Store the labels of a CSV or Parquet file, or of a folder of such files; see `accept`."""
    from models.sources.folders import data_files
    from models.sources.row_batches import concatenated, row_batches

    folder, na_is_text = path if path.is_dir() else None, _preparation(project, spec).na_is_text
    tables = list(row_batches(data_files(path), {}, 1 << 20, folder, na_is_text))
    if not tables:
        return dict.fromkeys(("taken", "corrected", "repeated", "waiting", "empty"), 0)
    return accept(project, spec, concatenated(tables), labeller=labeller, id_column=id_column, display_name=str(path))


def forget(project: Project, spec: Spec, ids: Sequence[str], *, labeller: str) -> int:
    """Withdraw the labels of some ids: their predictions become unlabelled and are not in the next dataset.

    Models trained and metrics counted with these labels stay as they are.

    Raises:
        UsageError: One of the ids has no label; nothing was withdrawn.
        StoreError: The disk is full, or another process keeps moving labels; nothing was withdrawn.

    Returns:
        The number of withdrawn labels.
    """
    state, unique = project.state(spec.name), list(dict.fromkeys(ids))
    with moving(state, PATIENCE_S):
        receive_held(state)
        column = pa.chunked_array([unique], pa.string())
        has_label = latest_labels(label_store(state), column).column(LABEL).is_valid().to_pylist()
        if not all(has_label):
            raise UsageError(f"{spec.name}: {unique[has_label.index(False)]!r} has no label: nothing was forgotten")
        now = datetime.fromtimestamp(time.time(), UTC)
        columns = {"id": column, LABEL: pa.nulls(len(unique), pa.string())}
        columns |= {
            "at": pa.array([now] * len(unique), pa.timestamp("us", tz="UTC")),
            "by": pa.array([labeller] * len(unique)),
        }
        labels = pa.table(columns)
        share_labels(state, labels)
        add_labels(state, labels)
    return len(unique)


def _written(rows: pa.Table, forms: Mapping[str, str], display_name: str) -> pa.Table:
    """Return the rows with the numbers that texts of labels say."""
    try:
        return with_forms(rows, forms)
    except DataError as error:
        raise DataError(f"{display_name}, {error}") from error


def _preparation(project: Project, spec: Spec) -> Preparation:
    """Return the preparation that defines valid labels: of the prepared data, else of the newest cached version."""
    place = project.workspace.cache / "models" / spec.name
    cached = sorted(place.glob("*/"), key=lambda folder: (len(folder.name), folder.name), reverse=True)  # 10 is after 9
    for folder in (project.prepared, *cached):
        if (folder / PREPARATION_FILE).is_file():
            return Preparation.load_schema(folder)
    raise UsageError(
        f"{spec.name}: nothing was prepared yet, so what a label may be is not known: `loopline run` first"
    )
