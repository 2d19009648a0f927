"""Version: commits the raw and the prepared data to DVC and logs the dataset's identity in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.data.check import table_schema
from models.data.preparation import Preparation
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.sources.mapped import mapped_table
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.mlflow.projection import DIGEST_CHARACTERS
from tasks.state.outbox import LOOP_RUN
from tasks.steps.profile import keep_profile
from tasks.tools import dvc_repo

CONTEXTS = {"train": "training", "validation": "validation", "test": "test"}
"""The splits that are datasets of the run, and what MLflow calls their use."""
TYPES = {
    "int64": "long",
    "uint32": "long",
    "uint64": "long",
    "int": "integer",
    "uint": "integer",
    "double": "double",
    "float": "float",
    "bool": "boolean",
    "timestamp": "datetime",
    "date": "datetime",
    "binary": "binary",
}
"""MLflow's types by the beginning of Arrow's names, the first that fits; all others are shown as texts."""


def version(loop: Loop) -> tuple[StepRecord, bool]:
    """Commit raw and prepared data to DVC, push them if a remote is set, and log the dataset in MLflow.

    Raises:
        StoreError: DVC's repository cannot be used.
    """

    def act(inputs: Inputs, _: Path) -> StepResult:
        raw = mapped_table(inputs["ingest"].file("raw.parquet"))
        rows = {"raw_rows": raw.num_rows, **Preparation.load(inputs["prepare"].folder).rows}
        return StepResult(result={**dvc_repo.commit(loop.project, loop.id), "rows": rows, "schema": table_schema(raw)})

    record, was_done = loop.carry_out("version", act)
    for split, context in CONTEXTS.items():
        if record.result["rows"].get(split):
            loop.outbox.dataset(LOOP_RUN, _dataset(loop.spec, record.result, split), context)
    keep_profile(loop, record)
    loop.outbox.tags(LOOP_RUN, {"loopline.dataset": record.result["prepared"], "loopline.raw": record.result["raw"]})
    return record, was_done


def _dataset(spec: Spec, version: dict[str, Any], split: str) -> dict[str, Any]:
    """Return the rows of a split as MLflow describes a dataset: it tells two by name and digest."""
    columns, num_rows = version["schema"], version["rows"][split]
    return {
        "name": f"{spec.name}-{split}",
        "digest": version["prepared"][:DIGEST_CHARACTERS],
        "source_type": "code",  # a type that MLflow's clients read back; they know none of DVC
        "source": {
            "tags": {
                "mlflow.source.name": str(spec.data.source),
                "dvc_prepared": version["prepared"],
                "dvc_raw": version["raw"],
            }
        },
        "schema": {"mlflow_colspec": [_column(column) for column in columns]},
        "profile": {"num_rows": num_rows, "num_elements": num_rows * len(columns)},
    }


def _column(column: dict[str, Any]) -> dict[str, Any]:
    kind = next((name for prefix, name in TYPES.items() if column["dtype"].startswith(prefix)), "string")
    return {"name": column["name"], "type": kind, "required": not column["nulls"]}
