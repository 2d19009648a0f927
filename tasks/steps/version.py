"""Version: commits the raw and the prepared data to DVC and logs the dataset's identity in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.data.check import table_schema
from models.data.preparation import Preparation
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.sources.read import read_table
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.state.outbox import LOOP_RUN
from tasks.tools import dvc_repo


def version(loop: Loop) -> tuple[StepRecord, bool]:
    """Commit raw and prepared data to DVC, push them if a remote is set, and log the dataset in MLflow.

    Raises:
        StoreError: DVC's repository cannot be used.
    """

    def act(inputs: Inputs, _: Path) -> StepResult:
        raw = read_table(inputs["ingest"].file("raw.parquet"))
        rows = {"raw_rows": raw.num_rows, **Preparation.load(inputs["prepare"].folder).rows}
        return StepResult(result={**dvc_repo.commit(loop.project, loop.id), "rows": rows, "schema": table_schema(raw)})

    record, was_done = loop.carry_out("version", act)
    loop.outbox.dataset(LOOP_RUN, _dataset(loop.spec, record.result), "training")
    loop.outbox.tags(LOOP_RUN, {"loopline.dataset": record.result["prepared"], "loopline.raw": record.result["raw"]})
    return record, was_done


def _dataset(spec: Spec, version: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "digest": version["prepared"][:36],
        "source_type": "dvc",
        "source": {
            "uri": spec.data.source,
            "dvc": version["prepared"],
            "raw": version["raw"],
        },
        "schema": {"columns": version["schema"]},
        "profile": version["rows"],
    }
