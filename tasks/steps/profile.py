"""What a version of the data is like, for its page: computed where the data is versioned, once for each hash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.data.preparation import ROWS_FILE
from models.files import read_json, write_text
from models.pipeline.records import StepRecord
from models.validation.data_profile import CheckedExpectation, DataProfile
from models.validation.profiling import profile_of
from tasks.host import memory
from tasks.loop.loop import Loop
from tasks.loop.loop_pages import data_file
from tasks.state import shared_files

VALIDATIONS = ("validate-raw", "validate-prepared")
MOST_EXAMPLES = 10


def keep_profile(loop: Loop, version: StepRecord) -> None:
    """Write what the data of a version step's record is like, unless the file says so already.

    Nothing happens where the files of the data are not here, since another machine has made them.

    Raises:
        StoreError: The file cannot be written, or the object store cannot be used.
    """
    path = data_file(loop.state, version.result["prepared"])
    shared_files.fetch(loop.state, path)
    before = DataProfile.read(path.read_text()) if path.is_file() else None
    if before is not None and before.shows_rows == loop.spec.data.show_rows:
        return
    records, hashes = loop.step_cache.records, loop.step_cache.hashes
    if any(records.broken(loop.done[step], hashes) for step in ("ingest", "prepare")):
        return
    memory.release()
    files = {records.path(name).name: records.path(name) for name in loop.done["prepare"].outputs}
    profile = profile_of(loop.project.raw, files[ROWS_FILE].parent, loop.spec.data)
    reports = [records.path(name) for step in VALIDATIONS if step in loop.done for name in loop.done[step].outputs]
    about = {
        "data": version.result["prepared"],
        "raw": version.result["raw"],
        "project": loop.spec.name,
        "loop_id": version.loop_id,
        "created": version.finished,
        "validation": _checked(reports),
    }
    write_text(path, profile.model_copy(update=about).model_dump_json() + "\n")
    shared_files.publish(loop.state, loop.epoch, path)


def _checked(reports: Sequence[Path]) -> list[CheckedExpectation]:
    """Return what came of the expectations, from the files of the validations; those that are no reports have none."""
    checked = []
    for report in map(read_json, reports):
        for result in report.get("results", ()):
            values = {key: result[key] for key in CheckedExpectation.model_fields if key in result}
            examples = (values.get("examples") or [])[:MOST_EXAMPLES]
            checked.append(CheckedExpectation(**{**values, "stage": report["stage"], "examples": examples}))
    return checked
