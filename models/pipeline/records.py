"""The record of a finished step; `tasks/state/step_records.py` stores it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from models.frozen_model import FrozenModel
from models.pipeline.keys import Parts, key_of


class StepRecord(FrozenModel):
    """The record of one finished step.

    `outputs` maps a path (relative to the workspace if it is inside) to its SHA-256. `digest` is a hash over them, on
    which later steps depend. `result` holds the step's findings for people and for later steps. `snapshot` names the
    step's files at the object store; it is empty without LOOPLINE_ROOT.
    """

    step: str
    key: str
    parts: Parts
    outputs: dict[str, str] = Field(default_factory=dict)
    digest: str
    result: dict[str, Any] = Field(default_factory=dict)
    loop_id: str
    finished: float = Field(description="Unix time, seconds.")
    seconds: float = 0.0
    snapshot: str = ""


def digest_of(outputs: dict[str, str]) -> str:
    """Return one hash over the names and hashes of the outputs; only the last part of each path counts.

    Of files with the same last part the folder counts too.
    """
    names = Counter(Path(path).name for path in outputs)
    depth = {path: 1 if names[Path(path).name] == 1 else 2 for path in outputs}
    return key_of({"/".join(Path(path).parts[-depth[path] :]): digest for path, digest in outputs.items()})
