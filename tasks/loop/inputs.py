"""The inputs of a step: only the results of the steps that it declares in `models/pipeline/steps.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.pipeline.records import StepRecord
from models.pipeline.steps import Step


class Input:
    """The output of an earlier step: its files, and its result if the reading step declares that too.

    Args:
        record: The earlier step's record.
        files: The earlier step's files by name.
        work: The earlier step's work folder.
        reader: The step that reads.
    """

    def __init__(self, record: StepRecord, files: Mapping[str, Path], work: Path, reader: Step) -> None:
        self.files = files
        self._record = record
        self._work = work
        self._reader = reader

    @property
    def digest(self) -> str:
        """Hash of the step's files, or of its result if it has no files."""
        return self._record.digest

    @property
    def folder(self) -> Path:
        """The folder of the step's files."""
        return next(iter(self.files.values())).parent

    def file(self, name: str) -> Path:
        """Return the path of one of the step's files.

        Raises:
            KeyError: The step wrote no such file.
        """
        if name not in self.files:
            raise KeyError(f"{self._record.step} left no file {name!r}: it left {', '.join(self.files) or 'none'}")
        return self.files[name]

    @property
    def result(self) -> dict[str, Any]:
        """The result that the step recorded beside its files.

        Raises:
            KeyError: The reading step does not declare to read the result.
        """
        self._check_result()
        return self._record.result

    @property
    def figures(self) -> list[Path]:
        """The figures that the step drew.

        Raises:
            KeyError: The reading step does not declare to read the result.
        """
        self._check_result()
        return sorted((self._work / "figures").glob("*.svg"))

    def _check_result(self) -> None:
        name = self._record.step
        if name not in self._reader.results:
            raise KeyError(
                f"{self._reader.name} reads the result of {name!r}: declare it in `results` (models/pipeline/steps.py)"
            )


class Inputs:
    """The declared inputs of one step.

    Args:
        step: The step that reads the inputs.
        before: The input of each step in `step.after`.
        external: Returns the value of a name in `step.external`.
    """

    def __init__(self, step: Step, before: Mapping[str, Input], external: Callable[[str], Any]) -> None:
        self.step = step
        self._before = before
        self._external = external

    def __getitem__(self, name: str) -> Input:
        """Return the input from an earlier step.

        Raises:
            KeyError: The step does not declare to read that step.
        """
        if name not in self._before:
            raise KeyError(f"{self.step.name} reads {name!r}: declare it in `after` (models/pipeline/steps.py)")
        return self._before[name]

    def external(self, name: str) -> Any:
        """Return an input that is not from a step, as the step cache identified it for the step's key.

        Raises:
            KeyError: The step does not declare to read it.
        """
        if name not in self.step.external:
            raise KeyError(f"{self.step.name} reads {name!r}: declare it in `external` (models/pipeline/steps.py)")
        return self._external(name)
