"""Promote: makes the challenger the champion if its verdict says so and nobody moved the champion meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path

from models.pipeline.records import StepRecord
from tasks.loop.champion import open_registry
from tasks.loop.loop import Inputs, Loop, StepResult


def promote(loop: Loop) -> tuple[StepRecord, bool]:
    """Move the champion by compare-and-swap, or leave it and record the reason.

    Raises:
        GateRefused: The champion is no longer the version that the verdict compared with.
        StoreError: The registry is not reachable.
    """

    def act(inputs: Inputs, _: Path) -> StepResult:
        verdict = inputs["judge"]
        number = str(inputs["register"].result["version"])
        judged = json.loads(verdict.file("verdict.json").read_text())
        outcome = {
            "version": number,
            "decision": judged["decision"],
            "reasons": judged["reasons"],
            "loop_id": loop.id,
            "at": time.time(),
        }
        if judged["decision"] == "promote":
            expected = verdict.result["champion"]
            reason = "; ".join(judged["reasons"])
            registry = open_registry(loop.workspace, loop.spec.name)
            move = registry.promote(number, expected, loop_id=loop.id, reason=reason, check=loop.check)
            outcome["journal"] = move.number
        return StepResult(result=outcome)

    return loop.carry_out("promote", act)
