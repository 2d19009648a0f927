"""Create the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    _create_decisions()
    _create_deliveries()
    _create_events()
    _create_loops()
    _create_outbox()
    _create_runners()
    _create_step_records()
    _create_store_sizes()


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("signal", sa.Text(), nullable=False),
        sa.Column("flow_run", sa.Text(), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("decisions_by_flow_run", "decisions", ["project", "flow_run"])
    op.create_index("decisions_by_signal", "decisions", ["project", "signal"])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("loop_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("runs", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("loop_id"),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("sent", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("events_by_project", "events", ["is_open", "project"])
    op.create_index("events_by_state", "events", ["state", "number"])


def _create_loops() -> None:
    op.create_table(
        "loops",
        sa.Column("loop_id", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("saved", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("intent", sa.Text(), nullable=True),
        sa.Column("folder", sa.Text(), nullable=True),
        sa.Column("process", sa.JSON(), nullable=True),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("flow_run", sa.Text(), nullable=True),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("began", sa.Float(), nullable=False),
        sa.Column("closed", sa.Integer(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("device_seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("loop_id"),
    )
    op.create_index("loops_by_end", "loops", ["project", "closed"])
    op.create_index("loops_by_state", "loops", ["project", "saved"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("loop_id", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_by_loop", "outbox", ["project", "loop_id", "number"])


def _create_runners() -> None:
    op.create_table(
        "runners",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("flow_run", sa.Text(), nullable=True),
        sa.Column("process", sa.JSON(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )


def _create_step_records() -> None:
    op.create_table(
        "step_records",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("step_records_by_key", "step_records", ["project", "step", "key"], unique=True)
    op.create_index("step_records_by_number", "step_records", ["project", "step", "number"])


def _create_store_sizes() -> None:
    op.create_table(
        "store_sizes",
        sa.Column("store", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("store"),
    )
