"""How far a tool is behind: rows of the state database that MLflow or Prefect does not have yet."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, select

from models.report.facts import Lag
from tasks.host import database
from tasks.host.tables import champion_moves, events, registered_models, workspace
from tasks.state.outbox import waiting_loops


def lags(root: Path) -> list[Lag]:
    """Return what the tools lack, sorted; nothing if they have all.

    Args:
        root: The workspace's state folder, `.loopline`.

    Cost: four queries.
    """
    models, moves, own_id = registered_models, champion_moves, select(workspace.c.id).scalar_subquery()
    is_ours = (models.c.owner == "") | (models.c.owner == own_id)
    later = select(moves.c.project, func.count(), func.min(moves.c.at))
    later = later.join(models, models.c.project == moves.c.project).where(is_ours, moves.c.number > models.c.number)
    unsent = select(events.c.project, func.count().label("count"), func.min(events.c.number).label("number"))
    unsent_rows = unsent.where(events.c.state == "waiting").group_by(events.c.project).subquery()
    oldest = select(unsent_rows.c.project, unsent_rows.c.count, events.c.content)
    oldest = oldest.join(events, events.c.number == unsent_rows.c.number)
    with database.reading(root) as connection:
        behind = [Lag("MLflow", "moves", *row) for row in connection.execute(later.group_by(moves.c.project))]
        behind += [
            Lag("Prefect", "events", project, count, float(content["at"]))
            for project, count, content in connection.execute(oldest)
        ]
    ends: dict[str, list[float]] = {}
    for loop in waiting_loops(root).values():
        ends.setdefault(loop.project, []).append(loop.ended)
    behind += [Lag("MLflow", "logs", project, len(ended), min(ended)) for project, ended in ends.items()]
    return sorted(behind)
