"""Moves that a server makes in MLflow, in its own name, where it may not record a row of the state database.

The workspace that owns the model records them at its next look, as moves of that server.
"""

from __future__ import annotations

from models.errors import GateRefused
from models.serving.registry_comparison import MOVED_BY, NamedMove
from models.serving.releases import PLAN, PROMOTION, is_one_act
from tasks.mlflow import registry_reader
from tasks.mlflow.client import client, reaching_store
from tasks.mlflow.release_plans import plan_of


def give_back(model: str, version: str, actor: str, reason: str, act: str) -> None:
    """Move the alias to the previous champion if it is at this version, or end the version's trial; else nothing.

    Args:
        model: The registered model.
        version: The version that failed.
        actor: The server's name.
        reason: Why.
        act: The id of the trial or promotion in which it failed: a later one of the same version goes on.

    Raises:
        GateRefused: MLflow names no previous champion.
        StoreError: MLflow is away.
    """
    champion = registry_reader.aliased(model)
    if champion is None:
        return
    plan = plan_of(champion)
    if champion.number == version and is_one_act(act, champion.tags.get(PROMOTION, "")):
        previous = registry_reader.aliased(model, "previous")
        if previous is None or previous.number == version:
            raise GateRefused(
                f"{model}: MLflow has no alias `previous` to go back to: `loopline promote` takes any version"
            )
        _name(model, NamedMove(version=previous.number, actor=actor, reason=reason, action="rollback"))
        with reaching_store():
            client().set_registered_model_alias(model, "champion", previous.number)
    elif version in plan.versions and is_one_act(act, plan.canary.trial if plan.canary else ""):
        _name(model, NamedMove(version=champion.number, actor=actor, reason=reason, action="return"))
        with reaching_store():
            client().set_model_version_tag(model, champion.number, PLAN, "")


def _name(model: str, move: NamedMove) -> None:
    with reaching_store():
        client().set_registered_model_tag(model, MOVED_BY, move.model_dump_json())
