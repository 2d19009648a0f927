"""The report pages of each loop, whatever later loops write: `pages/LOOP/PAGE.html`; and what each data is like."""

from __future__ import annotations

from pathlib import Path

from models.files import write_bytes
from tasks.state import shared_files

FOLDER = "pages"
PAGE_OF_STEP = {"card": "card", "validate-raw": "validation-raw", "validate-prepared": "validation-prepared"}
"""The steps that write a page, each into its work folder, and the page's name."""


def page_of(state: Path, loop_id: str, name: str) -> Path:
    """Return the file of a loop's page; `state` is the project's folder under `.loopline/projects/`."""
    return state / FOLDER / loop_id / f"{name}.html"


def data_file(state: Path, data_hash: str) -> Path:
    """Return the file with what a version of the data is like; `data_hash` is DVC's hash of the prepared data."""
    return state / "data" / f"{data_hash}.json"


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
