"""Optuna's studies in their storage: copies of a journal, new tables in a database, and what is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from models.errors import StoreError
from tasks.host.store_addresses import without_password
from tasks.host.workspace import Workspace
from tasks.tools.optuna_study import reaching_studies, storage


def copy_studies(workspace: Workspace, target: Path) -> Path | None:
    """Copy the studies of the workspace's journal into a new file of SQLite; return the file, or None without studies.

    Cost: about 10 ms for each trial.
    """
    import optuna

    if not (workspace.state / "optuna" / "journal.log").exists():
        return None
    journal, copied = storage(workspace), optuna.storages.RDBStorage(f"sqlite:///{target}")
    for study in journal.get_all_studies():
        optuna.copy_study(from_study_name=study.study_name, from_storage=journal, to_storage=copied)
    copied.engine.dispose()
    return target


def make_study_tables(address: str) -> None:
    """Make Optuna's tables in a database.

    Raises:
        StoreError: The database cannot be used, or another version of Optuna made its tables.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with reaching_studies():
            optuna.storages.RDBStorage(address).engine.dispose()
    except RuntimeError as error:
        raise StoreError(f"{without_password(address)}: {error}: empty it, or update Optuna") from error


def delete_studies(workspace: Workspace, names: Iterable[str]) -> None:
    """Delete studies; those that are not there do no harm.

    Raises:
        StoreError: The storage cannot be used.
    """
    import optuna

    with reaching_studies():
        stored = storage(workspace)
        for name in names:
            with contextlib.suppress(KeyError):
                optuna.delete_study(study_name=name, storage=stored)
