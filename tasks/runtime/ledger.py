"""The ledger of a project: which work is done, by the records alone, and what would run now."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from models.errors import StoreError, UsageError
from models.files import Hashes, write_text
from models.identity import Parts, code_parts, key_of, library_parts, spec_parts
from models.nets.catalogue import NETS, net_name
from models.records import Record, Records
from models.refs import is_own_code, is_package, source_file
from models.spec import Spec
from models.steps import BY_NAME, STEPS, Planned, Step, plan
from tasks.runtime import dvc_view, registry_view
from tasks.runtime.feedback import Feedback, feedback_of
from tasks.runtime.moving import move
from tasks.runtime.registry_view import Version
from tasks.runtime.workspace import Project

RIVAL = "input:champion"
REMOTE = "input:DVC's remote"
ORIGIN = "input:start"
FRESH = "none"


class Ledger:
    """Answers what is done for a spec. Reads the champion once, when first asked about a step that depends on it.

    Raises:
        UsageError: Another project has the name.
    """

    def __init__(self, project: Project, spec: Spec) -> None:
        project.refuse_namesake(spec.name)
        self.project = project
        self.spec = spec
        self.state = project.state(spec.name)
        workspace = project.workspace
        self.records = Records(self.state / "records", workspace.root)
        self.hashes = Hashes(workspace.cache / "hashes.json")
        self._code_memory_path = workspace.cache / "code.json"
        self._code_memory: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            self._code_memory = json.loads(self._code_memory_path.read_text())
        self._code_known = json.dumps(self._code_memory)

    def champion(self) -> Version | None:
        """The registry's champion now."""
        return registry_view.aliased(self.spec.name)

    def rival(self, done: Mapping[str, Record]) -> str:
        """Identity of the version that the trained model is compared with; empty for none.

        It is the champion, or, where the trained model itself is the champion by now, the one that it displaced.
        """
        champion = self.champion()
        if champion is None:
            return ""
        own = done["train"].result["weights_sha256"]
        return champion.tags.get("loopline.rival", "") if champion.weights == own else champion.identity

    def origin(self, step: str, done: Mapping[str, Record]) -> str:
        """Identity of the weights that `step` begins with: `3:<hash>` for a version, `file:<hash>`, or FRESH.

        An alias is looked up once for all that else decides the step. While that stays as it is, the step keeps the
        version that it began with, though the alias has moved to the model that came of it.

        Raises:
            UsageError: There is no such version or file.
            StoreError: The registry is away.
        """
        return str(self.parts(BY_NAME[step], done)[ORIGIN])

    def _origin(self, step: Step, parts: Parts, done: Mapping[str, Record]) -> str:
        begun = [done[name] for name in step.after if name in done and ORIGIN in done[name].parts]
        before = begun[0] if begun else self.records.alike(step.name, parts, ORIGIN)
        if before is not None:
            return str(before.parts[ORIGIN])
        assert self.spec.train.start is not None
        weights = self.spec.train.start.weights
        if weights in registry_view.ALIASES:
            version = registry_view.aliased(self.spec.name, weights)
            return version.identity if version else FRESH
        if weights.isdecimal():
            version = registry_view.numbered(self.spec.name, weights)
            if version is None:
                raise UsageError(f"train.start.weights: {self.spec.name} has no version {weights}: name another")
            return version.identity
        path = (self.project.folder / Path(weights).expanduser()).resolve()
        if not path.is_file():
            expected = f"one of {', '.join(registry_view.ALIASES)}, a version number or a safetensors file"
            raise UsageError(f"train.start.weights: got {weights!r}, and there is no {path}: expected {expected}")
        return f"file:{self.hashes.of(path)}"

    def parts(self, step: Step, done: Mapping[str, Record]) -> Parts:
        """What decides the step's result, the records of the steps before it given."""
        parts = self._parts(step, done)
        if step.starts and self.spec.train.start is not None:
            parts[ORIGIN] = self._origin(step, parts, done)
        return parts

    def own_parts(self, step: Step) -> Parts:
        """What decides the step's result besides its inputs: the spec, the code and the libraries."""
        files = [path for name in self._references(step) if (path := source_file(name, self.project.folder))]
        return {
            **spec_parts(self.spec, step.reads),
            **code_parts(step.code, files, self._code_memory),
            **library_parts(step.libraries),
        }

    def _parts(self, step: Step, done: Mapping[str, Record]) -> Parts:
        return {
            **self.own_parts(step),
            **{f"input:{name}": done[name].digest for name in step.after},
            **({RIVAL: self.rival(done)} if step.rival else {}),
            **self._local_files(step),
            **self._labelled(step),
            **self._remote(step),
        }

    def current(self, step: Step, done: Mapping[str, Record]) -> tuple[Parts, Record | None, str | None]:
        """The step's parts now, the intact record of that work if there is one, and why a found one does not count."""
        parts = self.parts(step, done)
        record = self.records.find(step.name, key_of(parts))
        trouble = (self.records.broken(record, self.hashes) or self._gone(record)) if record else None
        return parts, None if trouble else record, trouble

    def _gone(self, record: Record) -> str | None:
        """Why a record of what lies in a store elsewhere no longer counts: that holds it no more."""
        result = record.result
        if record.step == "register" and "key" in result:
            version = registry_view.numbered(self.spec.name, str(result["version"]))
            if version is None or version.key != result["key"]:
                return f"the registry has no version {result['version']} of this work"
        if record.step == "version" and "prepared" in result:
            locked = dvc_view.hashes(self.project)
            if any(locked.get(name) != result[name] for name in dvc_view.STAGES.values()):
                return "dvc.lock does not name this data"
        return None

    def plan(self, steps: Sequence[Step] = STEPS) -> list[Planned]:
        """What would run, step by step, and why."""
        found: dict[str, tuple[Record | None, str | None]] = {}

        def parts_of(step: Step, done: Mapping[str, Record]) -> Parts:
            parts, record, trouble = self.current(step, done)
            found[step.name] = (record, trouble)
            return parts

        planned = plan(
            steps,
            parts_of,
            lambda step, key: found[step][0] or self.records.find(step, key),
            lambda record: found[record.step][1],
            self.records.latest,
        )
        self.save()
        return planned

    def save(self) -> None:
        """Keep remembered hashes and fingerprints for the next run."""
        self.hashes.save()
        memory = json.dumps(self._code_memory)
        if memory != self._code_known:
            with contextlib.suppress(OSError, StoreError):
                write_text(self._code_memory_path, memory)

    def outcome(self) -> dict[str, Any] | None:
        """What the last finished loop decided."""
        record = self.records.latest("promote")
        return record.result if record else None

    def _references(self, step: Step) -> Iterator[str]:
        """The code that the spec names for a step: a ready net by its own module, which no import leads to."""
        document = self.spec.model_dump()
        for path in step.references:
            name = str(_at(document, path) or "")
            if path == "model.net":
                name = net_name(name, self.spec.data.kind)
                name = NETS.get(name, name)
            yield name

    def _local_files(self, step: Step) -> Parts:
        """A source that is a file or folder here counts by its content."""
        source = self.spec.data.source
        if step.name != BY_NAME["ingest"].name or is_package(source) or is_own_code(source):
            return {}
        path = (self.project.folder / Path(source).expanduser()).resolve()
        return {f"file:{source}": self.hashes.of(path) if path.exists() else None}

    def _remote(self, step: Step) -> Parts:
        """Data is pushed to the remote that there is: another one has none of it yet."""
        remote = dvc_view.default_remote(dvc_view.root_of(self.project)) if step.name == "version" else ""
        return {REMOTE: remote} if remote else {}

    @cached_property
    def feedback(self) -> Feedback | None:
        """The labelled predictions that are rows of the dataset; None where there are none or the spec wants none."""
        if not self.spec.retrain.feedback or self.spec.data.kind in ("series", "text"):
            return None
        with contextlib.suppress(StoreError):  # busy or full: what waits counts the next time
            move(self.state)
        found = feedback_of(self.state)
        return found if found.rows else None

    def _labelled(self, step: Step) -> Parts:
        """Labelled predictions count by what they say, and by what makes rows of them: a new label makes new data."""
        if step.name != BY_NAME["ingest"].name or self.feedback is None:
            return {}
        data = self.spec.data
        rows_of = " ".join(filter(None, [data.target, "by", data.split.by, data.split.column]))
        return {"feedback:labelled predictions": f"{self.feedback.rows} ({self.feedback.digest}) for {rows_of}"}


def _at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
