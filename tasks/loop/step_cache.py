"""The step cache of a project: which steps are done, by their records, and what would run now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import StoreError, UsageError
from models.files import Hashes
from models.pipeline.keys import CodeReader, Parts, declared, key_of, library_parts
from models.pipeline.records import StepRecord
from models.pipeline.steps import DATA_STEPS, STEPS, External, PlannedStep, Step, plan
from models.project_spec import own_reads
from models.project_spec.blocks import Spec
from models.project_spec.own_reads import Reads
from models.project_spec.references import (
    ALIASES,
    source_file,
    weights_file,
)
from models.serving.registry import RegisteredVersion
from models.sources.schemes import scheme_of
from models.sources.source import Source
from tasks.gc.retention import DAY_S, keep_days
from tasks.host import database
from tasks.host.object_store import DamagedError, object_store
from tasks.host.workspace import Project, Workspace
from tasks.loop.champion_parts import BEST_RIVAL, EQUAL_ROWS, RIVAL, Rival, equal_rows_parts, rival_parts
from tasks.loop.inputs import Input, Inputs
from tasks.loop.own_inputs import OwnInputs
from tasks.loop.spec_code import StepCode, code_of
from tasks.mlflow import registry_reader
from tasks.state import shared_files
from tasks.state.feedback import FeedbackSummary, feedback_of
from tasks.state.ingest_segments import move
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore
from tasks.tools import dvc_view

REFERENCE = "input:champion's data"
REMOTE = "input:DVC's remote"
ORIGIN = "input:start"
FRESH = "none"
REFERENCES = "references"
"""The folder with the data reference that `validate-prepared` wrote for each registered version, by version."""
UNREACHABLE = "the registry is away"


class Memories(NamedTuple):
    """What is known of a workspace's files: their hashes, and the fingerprints of code."""

    hashes: Hashes
    code: CodeReader


class Recorded(NamedTuple):
    """What the state database holds of several projects, read at once for who looks at one moment.

    `folders` is what `Workspace.folders` returned; `latest` holds the last record by project and step, and
    `named` the versions by project and alias or number, without projects of which MLflow must be asked.
    """

    folders: Mapping[str, Path]
    latest: Mapping[str, Mapping[str, StepRecord]]
    named: Mapping[str, Mapping[str, RegisteredVersion]]


def memories_of(workspace: Workspace) -> Memories:
    """Return what the last run stored of files."""
    return Memories(Hashes(workspace.cache / "hashes.json"), CodeReader(workspace.cache / "code.json"))


class StepCache:
    """Tells which steps are done for a spec; reads the champion only for steps that depend on it.

    Args:
        project: The project.
        spec: Its spec.
        memories: What is known of files, for several projects that are looked at together.
        recorded: What the state database holds of these projects; default: it is read when it is needed.

    Raises:
        UsageError: Another project has the name.
    """

    def __init__(
        self, project: Project, spec: Spec, memories: Memories | None = None, recorded: Recorded | None = None
    ) -> None:
        project.refuse_namesake(spec.name, recorded.folders if recorded else None)
        self.project = project
        self.spec = spec
        self.state = project.state(spec.name)
        workspace = project.workspace
        self.records = StepRecords(self.state, workspace.root, recorded.latest[spec.name] if recorded else None)
        self.hashes, self.code = memories or memories_of(workspace)
        self.own_inputs = OwnInputs(project, self.hashes, self.code)
        store = object_store()
        keep_s = keep_days() * DAY_S
        self._is_onlooker = recorded is not None
        self._spec_code = code_of(spec, project.spec_path)
        self._named = recorded.named.get(spec.name) if recorded else None
        self.store = StepStore(store, self.state, self.records, self.hashes, keep_s) if store else None

    def champion(self) -> RegisteredVersion | None:
        """Return the registry's current champion, or None."""
        return self.version("champion")

    def version(self, name: str) -> RegisteredVersion | None:
        """Return the version that an alias or a number names, or None."""
        if self._named is not None and (name in self._named or name in ALIASES):
            return self._named.get(name)
        return registry_reader.named(self.project.workspace.state, self.spec.name, name)

    def _start(self, step: Step, parts: Parts, records: Mapping[str, StepRecord]) -> Parts:
        """Return the identity of a training's initial weights: `3:<hash>` for a version, `file:<hash>`, or FRESH.

        An alias is looked up only once as long as the step's other key parts stay the same. The step then keeps the
        version that it began with, even if the alias has moved to the model that this training made.

        Raises:
            UsageError: There is no such version or file.
            StoreError: The registry is not reachable.
        """
        return {} if self.spec.train.start is None else {ORIGIN: self._origin(step, parts, records)}

    def _origin(self, step: Step, parts: Parts, records: Mapping[str, StepRecord]) -> str:
        earlier = [records[name] for name in step.after if name in records and ORIGIN in records[name].parts]
        before = earlier[0] if earlier else self.records.alike(step.name, parts, ORIGIN)
        if before is not None:
            return str(before.parts[ORIGIN])
        assert self.spec.train.start is not None
        weights = self.spec.train.start.weights
        if weights in ALIASES:
            version = self.version(weights)
            return version.identity if version else FRESH
        if weights.isdecimal():
            version = self.version(weights)
            if version is None:
                raise UsageError(f"train.start.weights: {self.spec.name} has no version {weights}: name another")
            return version.identity
        return f"file:{self.hashes.of(weights_file(weights, self.project.folder))}"

    def parts(self, step: Step, records: Mapping[str, StepRecord]) -> Parts:
        """Return the parts of the step's cache key, computed from the records of the steps before it."""
        parts: Parts = {
            **self.own_parts(step),
            **{f"input:{name}": records[name].digest for name in step.after},
            **{f"result:{name}": key_of(records[name].result) for name in step.results},
        }
        identify: dict[External, Callable[[Step, Parts, Mapping[str, StepRecord]], Parts]] = {
            "source": self._source,
            "feedback": self._labelled,
            "previous": lambda *_: {},  # only used for checks and notes; it does not change the result
            "remote": self._remote,
            "start": self._start,
            "champion": lambda _step, _parts, records: rival_parts(
                self.champion(), records["train"].result["weights_sha256"]
            ),
            "reference": self._reference,
            "equal_rows": lambda step, *_: equal_rows_parts(
                self.spec.data, self.records.newest(step.name), self.champion
            ),
        }
        for name in step.external:
            parts |= identify[name](step, parts, records)
        return parts

    def inputs(self, step: Step, records: Mapping[str, StepRecord], parts: Parts) -> Inputs:
        """Return the step's inputs, exactly those in `parts`, its key."""

        def before(name: str) -> Input:
            record = records[name]
            work, paths = self.work(record.step, record.key), [self.records.path(output) for output in record.outputs]
            files = {str(path.relative_to(work) if path.is_relative_to(work) else path.name): path for path in paths}
            return Input(record, files, work, step)

        def external(name: str) -> Any:
            if name == "champion":
                champion = self.champion()
                return Rival(parts[RIVAL], champion.number if champion else None, parts.get(BEST_RIVAL, ""))
            values: dict[str, Callable[[], Any]] = {
                "feedback": lambda: self.feedback,
                "previous": lambda: self.records.latest(step.name),
                "start": lambda: parts.get(ORIGIN),
                "equal_rows": lambda: parts.get(EQUAL_ROWS),
                "reference": lambda: self._reference_file(parts[REFERENCE]),
            }
            return values[name]()

        return Inputs(step, {name: before(name) for name in step.after}, external)

    def work(self, step: str, key: str) -> Path:
        """Return the work folder of a step and key, the same at every attempt."""
        return self.state / "work" / step / key[:16]

    def own_parts(self, step: Step) -> Parts:
        """Return the key parts other than the step's inputs: the spec, the code and the libraries."""
        settings, named = self._spec_code.settings(step), self._code_of(step)
        return {
            **settings,
            **self._argument_files(settings),
            **(self._declared_files() if named.has_own else {}),
            **self.code.parts(step.code, self._code_files(step), named.packages),
            **library_parts([*step.libraries, *self._spec_code.libraries(step)]),
        }

    def _code_of(self, step: Step) -> StepCode:
        return self._spec_code.code(step, has_feedback="feedback" in step.external and self.feedback is not None)

    def _code_files(self, step: Step) -> list[Path]:
        sources, folder = self._code_of(step).sources, self.project.folder
        files = (self.code.own_file(name.rpartition(":")[0]) or source_file(name, folder) for name in sources)
        return [path for path in files if path]

    def _declared_files(self) -> Parts:
        """Return the content hash of each file and folder that `reads` names; None if it went away."""
        files = {text: self.project.folder / text for text in self.spec.reads}
        return {
            f"file:{text}": self.hashes.of(path.resolve()) if path.exists() else None for text, path in files.items()
        }

    def _argument_files(self, spec: Parts) -> Parts:
        """Return the content hash of each file and folder, such as weights, that an argument of the net names."""
        todo = [value for key, value in spec.items() if key.startswith("spec:model.arguments.")]
        texts = []
        while todo:
            value = todo.pop()
            todo += value if isinstance(value, list) else []
            texts += [value] if isinstance(value, str) and value else []
        files = {text: self.project.folder / text for text in texts}
        return {f"file:{text}": self.hashes.of(path.resolve()) for text, path in files.items() if path.exists()}

    def current(self, step: Step, records: Mapping[str, StepRecord]) -> tuple[Parts, StepRecord | None, str | None]:
        """Return the step's current parts, its record or None, and why the record is invalid, or None.

        The files of a step whose record names a snapshot need not be here: `fetch` brings them.
        """
        parts = self.parts(step, records)
        record = self.records.of_parts(step.name, parts)
        if (
            self._code_of(step).has_own
            if record is None
            else record.parts != parts and declared(record.parts) != record.parts
        ):
            parts, record = self._of_own_code(step, parts)
        if record is None:
            return parts, None, None
        broken = None if self.store and record.snapshot else self.records.broken(record, self.hashes)
        return parts, record, broken or self._gone(record)

    def _of_own_code(self, step: Step, parts: Parts) -> tuple[Parts, StepRecord | None]:
        """Return the parts with what own code read when it last ran with these, and the record if all of it is as then.

        Of the records with these parts the newest counts of which all is as then: a file may be changed back.
        """
        alike = [record for record in self.records.recent(step.name) if declared(record.parts) == parts]
        for record in alike:
            if self.own_inputs.now(record.parts) == record.parts:
                return record.parts, record
        return (self.own_inputs.now({**alike[0].parts, **parts}) if alike else parts), None

    def begun(self, step: Step, parts: Parts) -> Parts:
        """Return the parts with which a step begins; its work folder has their key.

        If an interrupted attempt with these parts read files that have changed since, they are among the parts.
        """
        reads = own_reads.load(self.work(step.name, key_of(parts)))
        return {**parts, **self.read_parts(step, parts, reads)} if reads.changed() else parts

    def read_parts(self, step: Step, parts: Parts, reads: Reads) -> Parts:
        """Return what own code was seen to read and import in a step, as parts of its key.

        Args:
            step: The step.
            parts: Its other parts; what they name is left out.
            reads: What was seen.
        """
        if not len(reads):
            return {}
        named = [self.project.folder / name[len("file:") :] for name in parts if name.startswith("file:")]
        code = self.code.users_files(self._code_files(step))
        packages = {name for name in reads.packages if f"library:{name}" not in parts}
        return {**self.own_inputs.parts(reads, code, named), **self.code.package_parts(packages)}

    def read_since(self, step: str) -> Parts:
        """Return what own code read when a step last ran, and what `reads` names, with the present hashes."""
        record = self.records.latest(step)
        then = record.parts if record else {}
        seen = {name: value for name, value in then.items() if name not in declared(then)}
        return {**self._declared_files(), **self.own_inputs.now(seen)}

    def fetch(self, record: StepRecord) -> str | None:
        """Make the files of a finished step be here; return why the record is invalid, or None.

        Raises:
            StoreError: The object store cannot be used, or the disk is full.
        """
        if self.store is None or not record.snapshot or not self.records.broken(record, self.hashes):
            return None
        try:
            self.store.fetch(record, self.work(record.step, record.key))
        except DamagedError as error:
            return str(error)
        return None

    def _gone(self, record: StepRecord) -> str | None:
        """Return why a record is invalid because the registry or DVC lost its result; None if they have it."""
        result = record.result
        if record.step == "register" and "key" in result:
            version = self.version(str(result["version"]))
            if version is None or version.key != result["key"]:
                return f"the registry has no version {result['version']} of this work"
        if record.step == "version" and "prepared" in result:
            locked = dvc_view.hashes(self.project)
            if any(locked.get(name) != result[name] for name in dvc_view.STAGES.values()):
                return "dvc.lock does not name this data"
            if lost := self.lost_data(record):
                return f"DVC's cache has lost {lost[0]}, and there is no remote: the data in data/ is committed again"
        return None

    def lost_data(self, record: StepRecord) -> list[Path]:
        """Return the files of a dataset version that DVC's cache has lost; of one with a remote, none: it has them."""
        result = record.result
        if not result.get("is_cached") or result.get("remote"):
            return []
        return dvc_view.lost_objects(self.project, [str(result[name]) for name in dvc_view.STAGES.values()])

    def plan(self, steps: Sequence[Step] = STEPS) -> list[PlannedStep]:
        """Return the plan: which steps would run, and why."""
        with database.reading(self.project.workspace.state):  # all records by one connection, of one moment
            planned = plan(steps, self.current, self.records.latest)
        self.save()
        return planned

    def plan_data(self) -> list[PlannedStep]:
        """Return the plan of the steps before the training, which needs no registry."""
        return plan(DATA_STEPS, self.current, self.records.latest)

    def save(self) -> None:
        """Store file hashes and code fingerprints for the next run."""
        self.hashes.save()
        self.code.save()

    def _source(self, step: Step, *_: Any) -> Parts:
        """Return what the source holds now; who looks at many projects asks no source, and takes the last ingest's."""
        source = self.spec.data.source
        last = self.records.latest(step.name)
        parts_then = (last.parts if last else {}) if self._is_onlooker else None
        return {**scheme_of(source).identity(Source(source, self.project.folder), self.hashes, parts_then)}

    def _remote(self, *_: Any) -> Parts:
        """Return DVC's default remote: a new remote has no data yet, so the data must be pushed again."""
        remote = dvc_view.default_remote(dvc_view.root_of(self.project))
        return {REMOTE: remote} if remote else {}

    def _reference(self, step: Step, parts: Parts, _: Any) -> Parts:
        """Return the hash of the champion's data reference; empty without a champion.

        If the champion was trained on this same data, the reference of the earlier comparison stays in the key. An
        unreachable registry only skips the comparison.
        """
        data = "input:prepare"
        same = (record for record in self.records.newest(step.name) if record.parts.get(data) == parts[data])
        before = next((record for record in same if REFERENCE in record.parts), None)
        try:
            champion = self.champion()
        except StoreError:
            return {REFERENCE: before.parts[REFERENCE] if before else UNREACHABLE}
        path = self.state / REFERENCES / f"{champion.number if champion else None}.json"
        if champion:
            shared_files.fetch(self.state, path)
        now = self.hashes.of(path) if path.exists() else ""
        return {REFERENCE: before.parts[REFERENCE] if before and now in before.outputs.values() else now}

    def _reference_file(self, digest: str) -> Path | None:
        """Return the file of the champion's data reference; None without a champion.

        Raises:
            StoreError: The registry was not reachable, or the file is missing.
        """
        files = (self.state / REFERENCES).glob("*.json")
        path = next((path for path in files if self.hashes.of(path) == digest), None)
        if digest and path is None:
            folder = self.state / REFERENCES
            gone = f"{folder}: its file is not there: put it back from a copy, or wait for the next champion's"
            raise StoreError(digest if digest == UNREACHABLE else gone)
        return path

    @cached_property
    def feedback(self) -> FeedbackSummary | None:
        """The labelled predictions that join the dataset; None if there are none or the spec does not use them."""
        if not self.spec.retrain.feedback or self.spec.data.kind in ("series", "text"):
            return None
        with contextlib.suppress(StoreError):  # lock busy or disk full: waiting labels count the next time
            move(self.state)
        feedback = feedback_of(self.state)
        return feedback if feedback.rows else None

    def _labelled(self, *_: Any) -> Parts:
        """Return the key part of labelled predictions: their content, and the spec settings that make rows of them."""
        if self.feedback is None:
            return {}
        data = self.spec.data
        rows_of = " ".join(filter(None, [data.target_name, "by", data.split.by, data.split.column, data.id]))
        if data.expectations:
            rows_of += f", expected {key_of(data.model_dump(mode='json', include={'expectations'}))[:8]}"
        return {"feedback:labelled predictions": f"{self.feedback.rows} ({self.feedback.digest}) for {rows_of}"}
