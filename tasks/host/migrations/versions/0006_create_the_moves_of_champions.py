"""Create the tables of the registry: the moves of champions, the versions, and how far MLflow follows.

The journal of an older Loopline stands in MLflow's tags, which a migration cannot read: each project that registered a
version gets a row that asks for a first look.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table("workspace", sa.Column("id", sa.Text(), primary_key=True))
    op.create_table(
        "champion_moves",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("id", sa.Text(), nullable=False, unique=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("promotion", sa.Text(), nullable=False),
        sa.Column("best", sa.Text()),
        sa.Column("loop_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "number"),
    )
    op.create_table(
        "versions",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("is_removed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("project", "version"),
    )
    op.create_index("versions_by_key", "versions", ["project", "key"])
    models = op.create_table(
        "registered_models",
        sa.Column("project", sa.Text(), primary_key=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("challenger", sa.Text()),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("alias", sa.Text()),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("intents", sa.JSON(), nullable=False),
        sa.Column("looked", sa.Float()),
        sa.Column("trouble", sa.Text(), nullable=False),
    )
    records = sa.table("step_records", sa.column("project"), sa.column("step"))
    projects = op.get_bind().execute(sa.select(records.c.project).where(records.c.step == "register").distinct())
    first = {"owner": "", "number": 0, "mark": "", "intents": [], "trouble": ""}
    op.bulk_insert(models, [{"project": project, **first} for (project,) in projects])
