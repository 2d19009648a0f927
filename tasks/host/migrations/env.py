"""Alembic's entry point: runs the migrations on the connection that `tasks/host/database.py` hands over."""

from __future__ import annotations

from alembic import context

from tasks.host.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, transactional_ddl=True)
context.run_migrations()
