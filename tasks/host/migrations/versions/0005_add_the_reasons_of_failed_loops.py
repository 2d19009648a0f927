"""Add why a loop failed or its data was rejected: the overview names it without Prefect's log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; loops of an older Loopline have no reason."""
    op.add_column("loops", sa.Column("reason", sa.Text(), nullable=False, server_default=""))
