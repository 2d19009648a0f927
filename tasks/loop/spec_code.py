"""What a spec says of a step's key: the settings that the step reads, and the code that it runs by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from models.nets.catalogue import row_of
from models.pipeline.keys import Parts, spec_parts
from models.pipeline.steps import BY_NAME, Step
from models.project_spec.blocks import Spec
from models.project_spec.references import OWN_PACKAGES, is_own_code, sort_of_net
from models.training.families import families_of

_of_files: dict[Path, SpecCode] = {}


class StepCode(NamedTuple):
    """The code that a spec names for a step.

    `sources` are the references whose files count; of an estimator's library the version counts, and not its hundreds
    of files. `packages` are those that hold what is named, `has_own` says whether any of it is a team's.
    """

    sources: list[str]
    packages: set[str]
    has_own: bool


class SpecCode:
    """The settings and the code that each step takes from a spec, worked out once.

    Args:
        spec: The spec.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._document = spec.model_dump(mode="json")
        self._settings: dict[Step, Parts] = {}
        self._code: dict[tuple[Step, bool], StepCode] = {}

    def settings(self, step: Step) -> Parts:
        """Return the settings that a step reads, as parts of its key."""
        if step not in self._settings:
            self._settings[step] = spec_parts(self._document, step.reads)
        return self._settings[step]

    def code(self, step: Step, *, has_feedback: bool) -> StepCode:
        """Return the code that a step runs by name: the spec's, and that of its families, which no import names.

        Args:
            step: The step.
            has_feedback: Whether labelled predictions join the data; what takes them checks them, by own classes too.
        """
        named = (step, has_feedback)
        if named not in self._code:
            checked = BY_NAME["validate-raw"].references if has_feedback else ()
            names = [text for path in (*step.references, *checked) for text in _strings_at(self._document, path)]
            for net in self._families(step):
                names += [net, *row_of(net).code(step.family)]
            names = [name for name in names if is_own_code(name)]
            modules = [name.rpartition(":")[0] for name in names]
            packages = {module.partition(".")[0] for module in modules if not module.endswith(".py")}
            self._code[named] = StepCode(
                sources=[name for name in names if sort_of_net(name) != "class"],
                packages=packages - {*OWN_PACKAGES},
                has_own=any(name.partition(".")[0] not in OWN_PACKAGES for name in names),
            )
        return self._code[named]

    def libraries(self, step: Step) -> list[str]:
        """Return the libraries of the families, for a step that runs their code."""
        return [library for net in self._families(step) for library in row_of(net).libraries]

    def _families(self, step: Step) -> tuple[str, ...]:
        return self._nets if step.family else ()

    @cached_property
    def _nets(self) -> tuple[str, ...]:
        return families_of(self.spec)


def code_of(spec: Spec, path: Path) -> SpecCode:
    """Return what a spec says of keys: for the spec of a file that has not changed, what was worked out before.

    Args:
        spec: The spec; `current_spec` returns the same one as long as its file is the same.
        path: Its file.
    """
    last = _of_files.get(path)
    if last is None or last.spec is not spec:
        last = _of_files[path] = SpecCode(spec)
    return last


def _strings_at(document: Any, path: str) -> list[str]:
    block, _, last = path.rpartition(".")
    parts = _at(document, block)
    return [str(_at(part, last) or "") for part in (parts if isinstance(parts, list) else [parts])]


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
