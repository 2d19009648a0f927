"""The numbers of a loop's model, where DVC's own commands show them; in no key, since no step reads them."""

from __future__ import annotations

from tasks.loop.loop import Loop
from tasks.tools import dvc_repo

STEPS = ("judge", "train", "promote")
"""The steps whose results are shown."""


def show_in_dvc(loop: Loop) -> None:
    """Write the numbers of this loop's model, once it has been judged and promoted or not."""
    if not all(name in loop.done for name in STEPS):
        return
    judged, trained, outcome = (loop.done[name].result for name in STEPS)
    numbers = {
        "version": int(outcome["version"]),
        "is_champion": outcome["decision"] == "promote",
        "test": {name: value for name, value in judged["metrics"].items() if value is not None},
    }
    dvc_repo.write_results(loop.project, loop.id, numbers, trained["epochs"])
