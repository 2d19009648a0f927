"""The report pages of each loop under its own address, whatever later loops write: `pages/LOOP/PAGE.html`."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from models.errors import StoreError
from models.files import write_bytes
from models.project_spec.references import ALIASES
from tasks.loop.work_gc import DAY_S
from tasks.mlflow import registry_reader
from tasks.state import shared_files

FOLDER = "pages"
PAGE_OF_STEP = {"card": "card", "validate-raw": "validation-raw", "validate-prepared": "validation-prepared"}
"""The steps that write a page, each into its work folder, and the page's name."""


def page_of(state: Path, loop_id: str, name: str) -> Path:
    """Return the file of a loop's page; `state` is the project's folder under `.loopline/projects/`."""
    return state / FOLDER / loop_id / f"{name}.html"


def keep_page(state: Path, loop_id: str, name: str, source: Path, epoch: int, maker: str = "") -> Path:
    """Copy a page to a loop's address; return its file there, which is missing if the page is nowhere to be found.

    Args:
        state: The project's folder under `.loopline/projects/`.
        loop_id: The loop.
        name: The page's name.
        source: The page in the work folder of its step.
        epoch: The epoch of the loop's lease.
        maker: The earlier loop that did the step, perhaps on another machine; its page is copied if `source` is gone.

    Raises:
        StoreError: The object store cannot be used.
    """
    path = page_of(state, loop_id, name)
    if maker and not source.is_file():
        source = page_of(state, maker, name)
        shared_files.fetch(state, source)
    if source.is_file() and source != path:
        write_bytes(path, source.read_bytes())
        shared_files.publish(state, epoch, path)
    return path


def sweep_pages(state: Path, used: Collection[str], days: float, now: float | None = None) -> None:
    """Remove the pages of loops that ended longer ago than so many days.

    The pages of the loops in `used`, and of those that made the versions with an alias, stay; so do all pages while
    the registry is away.
    """
    before = (time.time() if now is None else now) - days * DAY_S
    old = [folder for folder in (state / FOLDER).glob("*") if folder.stat().st_mtime < before]
    if not old:
        return
    with contextlib.suppress(OSError, StoreError):  # the next loop tries again
        versions = [registry_reader.named(state.parents[1], state.name, alias) for alias in ALIASES]
        needed = {*used, *(version.loop_id for version in versions if version)}
        for folder in old:
            if folder.name not in needed:
                shutil.rmtree(folder)
