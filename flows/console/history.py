"""Prints the moves of a champion: what was done, by whom and why, and how far MLflow follows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from models.report.pages import ago
from models.serving.registry import ChampionMove, champion_words, version_words
from models.serving.registry_comparison import Projection
from models.serving.releases import ReleasePlan
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.state import registered_models
from tasks.state.champion_moves import moves_of
from tasks.state.registered_models import projection_of


def history(workspace: Workspace, project: str) -> dict[str, Any]:
    """Return all moves of a project, newest first, and what of them is carried to MLflow.

    Raises:
        StoreError: The state database cannot be used, or MLflow holds moves that were never read.
    """
    with database.reading(workspace.state) as connection:
        model = projection_of(workspace.state, project)
        moves = moves_of(workspace.state, project)
        if not moves:
            registered_models.refuse_unread(connection, project)
    return {
        "project": project,
        "mlflow": {"number": model.number, "alias": model.alias, "looked": model.looked, "trouble": model.trouble},
        "moves": [{**move.model_dump(), "is_carried": move.number <= model.number} for move in moves],
    }


def print_history(document: dict[str, Any]) -> None:
    """Print what `history` returns, a line for each move."""
    moves = [ChampionMove.model_validate(move) for move in document["moves"]]
    if not moves:
        click.echo(f"{document['project']}: no move so far: `loopline run {document['project']}` makes the first")
        return
    model = Projection(**document["mlflow"])
    waiting = moves[0].number - model.number
    click.echo(f"{document['project']}: {_carried(model, waiting)}")
    for move in moves:
        moment = f"{datetime.fromtimestamp(move.at, UTC):%Y-%m-%d %H:%M:%S}"
        mark = "" if move.number <= model.number else "  (waits for MLflow)"
        click.echo(
            f"{move.number:>4}  {moment}  {move.action:<10}{_versions(move):<12}  {move.by}: {move.reason}{mark}"
        )


def _carried(model: Projection, waiting: int) -> str:
    if waiting <= 0:
        return f"MLflow has all moves: {champion_words(model.alias)}"
    why = f": {model.trouble}" if model.trouble else ""
    return f"moves that wait for MLflow: {waiting}{why}"


def looked(moment: float | None, now: float) -> str:
    """Return when MLflow was last looked at (Unix time, seconds; None: never), in words."""
    return "MLflow was never looked at" if moment is None else f"MLflow was last looked at {ago(moment, now)}"


def _versions(move: ChampionMove) -> str:
    if move.before == move.after:
        return f"{_champion(move.after)}{_plan(move.plan)}"
    return f"{_champion(move.before)} -> {_champion(move.after)}{_plan(move.plan)}"


def _champion(number: str | None) -> str:
    return number or version_words(None)


def _plan(plan: ReleasePlan) -> str:
    canary = f" + {plan.canary.version} ({plan.canary.share:.0%})" if plan.canary else ""
    return canary + (f" + {plan.shadow} (shadow)" if plan.shadow else "")
