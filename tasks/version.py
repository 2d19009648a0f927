"""Version: DVC takes the raw and the prepared data; the dataset's identity goes to the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.data.preparation import Preparation
from models.records import Record
from tasks.adapters import dvc_repo
from tasks.runtime.loop import Done, Loop
from tasks.runtime.outbox import LOOP_RUN


def version(loop: Loop, raw: Record, prepared: Record) -> tuple[Record, bool]:
    """Commit both to DVC, push them where a remote is set, and tell MLflow which dataset the loop used.

    Raises:
        StoreError: DVC's repository cannot be used.
    """

    def act(_: Path) -> Done:
        return Done(result=dvc_repo.commit(loop.project, loop.id))

    record, was_done = loop.carry_out("version", act)
    loop.outbox.dataset(LOOP_RUN, _dataset(loop, raw, record), "training")
    loop.outbox.tags(LOOP_RUN, {"loopline.dataset": record.result["prepared"], "loopline.raw": record.result["raw"]})
    return record, was_done


def _dataset(loop: Loop, raw: Record, versions: Record) -> dict[str, Any]:
    preparation = Preparation.load(loop.project.prepared)
    return {
        "name": loop.spec.name,
        "digest": versions.result["prepared"][:36],
        "source_type": "dvc",
        "source": {
            "uri": loop.spec.data.source,
            "dvc": versions.result["prepared"],
            "raw": versions.result["raw"],
        },
        "schema": {"columns": raw.result["schema"]},
        "profile": {"raw_rows": raw.result["rows"], **preparation.rows},
    }
