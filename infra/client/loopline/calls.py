"""What begins the work: `run` and `load`."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from loopline.errors import LooplineError
from loopline.results import Model, Result


def run(
    frame: Any = None,
    *,
    target: str | None = None,
    name: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Train a model on the rows of a frame: the whole loop from validation to promotion, as `loopline run` does it.

    The first call makes the project `projects/NAME` as `loopline new` does, with a spec that explains its guesses. A
    later one replaces its rows; steps whose inputs did not change are not repeated. Each step prints a line on standard
    error. Ctrl-C ends the loop and records its end; the next call goes on after its last finished step.

    Args:
        frame: A frame of pandas, polars or pyarrow, anything with `__arrow_c_stream__`, or the path of a CSV or Parquet
            file or of a folder. Levels of a pandas index with a name are columns. None: the project
            is there, and its own source is read.
        target: The column to predict, or several separated by commas. It may be left out for a project that is there.
        name: The project; default: made of `target`.
        settings: Keys of the spec for this run alone, such as `{"search.trials": 10}`.

    Raises:
        LooplineError: What the command would have printed.
        KeyboardInterrupt: The loop was interrupted, and has ended.
    """
    from loopline.frames import as_file
    from loopline.session import ask

    overrides = [f"{key}={_written(key, value)}" for key, value in (settings or {}).items()]
    with contextlib.nullcontext((None, None)) if frame is None else as_file(frame) as (file, _):
        question = {"call": "run", "file": file, "is_frame": not isinstance(frame, str | os.PathLike)}
        return Result(ask({**question, "target": target, "project": name, "overrides": overrides}))


def load(name: str, version: str = "champion") -> Model:
    """Load a version of a project's model, ready to predict.

    Args:
        name: The project.
        version: `champion`, `challenger`, `previous`, or a number. The model stays this version when a later one is
            promoted.

    Raises:
        LooplineError: There is no such project or version.
    """
    from loopline.session import ask

    return Model(ask({"call": "load", "project": name, "version": version}))


def _written(key: str, value: Any) -> str:
    """Return the value of a setting as the command line takes it; numbers and arrays of numpy are plain ones."""
    try:
        return json.dumps(value, default=lambda other: other.tolist())
    except (AttributeError, ValueError) as error:
        expected = "expected a number, a text, a truth value, or lists or dicts of these"
        raise LooplineError(f"settings: {key}: got {value!r} ({type(value).__name__}), {expected}") from error
