"""Smoke test: `python -m tasks.release.smoke_test MODEL NUMBER FOLDER` loads a version and predicts an empty row."""

from __future__ import annotations

import sys
from pathlib import Path

from models.errors import LooplineError, StoreError
from models.inference.loaded_model import LoadedModel
from models.inference.names import output_names


def check(served: LoadedModel) -> None:
    """Check that a version accepts the inputs of its preparation and returns the outputs of its task.

    Loading the version has already run it on blank inputs.

    Raises:
        StoreError: The check failed.
    """
    preparation = served.preparation
    names = {port.name for port in served.outputs}
    if preparation.kind != "text" and not set(output_names(preparation.task)) <= names:
        expected = ", ".join(output_names(preparation.task))
        raise StoreError(f"its graph gives {', '.join(sorted(names))}, expected {expected}: export it again")
    if preparation.kind == "table":
        rows = served.schema.from_columns({port.name: [None] for port in served.inputs})
        try:
            served.answer(rows.feed)
        except Exception as error:
            raise StoreError(f"it does not answer an empty row ({error}): export it again") from error


def main() -> None:
    """Run the smoke test; exit with an error message on failure."""
    model, number, folder = sys.argv[1:]
    try:
        check(LoadedModel(model, number, Path(folder)))
    except LooplineError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
