"""The inputs of a step: the results that it declares in `models/pipeline/steps.py`, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from models.pipeline.records import StepRecord
from models.pipeline.steps import Step


class Input:
    """The output of an earlier step: its files, and its result if the reading step declares that too.

    Args:
        record: The record of the earlier step.
        files: Its files by name.
        work: The folder in which it worked.
        reader: The step that reads.
    """

    def __init__(self, record: StepRecord, files: Mapping[str, Path], work: Path, reader: Step) -> None:
        self.files = files
        self._record = record
        self._work = work
        self._reader = reader

    @property
    def digest(self) -> str:
        """Hash of its files, or of its result if it has none."""
        return self._record.digest

    @property
    def folder(self) -> Path:
        """The folder in which its files lie."""
        return next(iter(self.files.values())).parent

    def file(self, name: str) -> Path:
        """The path of one of its files.

        Raises:
            KeyError: It left no such file.
        """
        if name not in self.files:
            raise KeyError(f"{self._record.step} left no file {name!r}: it left {', '.join(self.files) or 'none'}")
        return self.files[name]

    @property
    def result(self) -> dict[str, Any]:
        """The values that the step recorded beside its files.

        Raises:
            KeyError: The step does not declare to read it.
        """
        self._check_result()
        return self._record.result

    @property
    def figures(self) -> list[Path]:
        """The pictures that it drew.

        Raises:
            KeyError: The step does not declare to read its result.
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
        step: Whose inputs they are.
        before: The record of each step in `step.after`.
        external: Gives the value of what `step.external` names.
    """

    def __init__(self, step: Step, before: Mapping[str, Input], external: Callable[[str], Any]) -> None:
        self.step = step
        self._before = before
        self._external = external

    def __getitem__(self, name: str) -> Input:
        """The input of a step before.

        Raises:
            KeyError: The step does not declare to read it.
        """
        if name not in self._before:
            raise KeyError(f"{self.step.name} reads {name!r}: declare it in `after` (models/pipeline/steps.py)")
        return self._before[name]

    def external(self, name: str) -> Any:
        """Return an input that is no step, as the step cache identified it for the key.

        Raises:
            KeyError: The step does not declare to read it.
        """
        if name not in self.step.external:
            raise KeyError(f"{self.step.name} reads {name!r}: declare it in `external` (models/pipeline/steps.py)")
        return self._external(name)
