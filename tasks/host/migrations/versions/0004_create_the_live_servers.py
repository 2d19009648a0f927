"""Create the table of the live servers of a deployment: they divide the rate limit, and show their release anywhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "servers",
        sa.Column("server", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("release", sa.JSON(), nullable=True),
        sa.Column("began", sa.Float(), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("server", "project"),
    )
