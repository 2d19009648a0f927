"""Add the id of the trial to the counts of servers: a version that is tried again is judged anew."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; counts of an older Loopline have no id."""
    op.add_column("served_versions", sa.Column("trial", sa.Text(), nullable=False, server_default=""))
