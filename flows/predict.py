"""Batch prediction as a flow, for a deployment with a schedule or by hand."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.console import reporting
from tasks.host import stores
from tasks.operations import predict as predicting


@flow(name="predict", persist_result=False)
def predict(
    project: str,
    file: str,
    out: str | None = None,
    id_column: str | None = None,
    version: str = "champion",
) -> dict[str, Any]:
    """Predict every row of a file or folder with a project's champion; the same rows are not predicted twice.

    Args:
        project: A name under projects/, or the path of a folder with a project.yaml.
        file: CSV, Parquet, or a folder of them, with the project's own raw columns; relative to the project's folder.
        out: The Parquet file to write, relative to the project's folder; default: beside `file`.
        id_column: The column with the row ids; default: ids are generated.
        version: `champion`, another alias, or a version number.
    """
    this_project = stores.open_project(project)
    target = this_project.folder / out if out else None
    return predicting.predict(
        this_project,
        this_project.spec(),
        this_project.folder / file,
        target,
        id_column=id_column,
        version=version,
        reporter=reporting.current(),
    )
