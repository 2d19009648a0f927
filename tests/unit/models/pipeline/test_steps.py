"""The plan: from the records alone, which steps stand, which would run, and which change is the reason."""

from collections.abc import Mapping
from typing import Any, get_args, get_origin

import pytest

from models.pipeline.keys import ROOT, code_parts, key_of
from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME, STEPS, PlannedStep, Step, plan
from models.project_spec.blocks import Spec

CHAIN = (Step("a"), Step("b", after=("a",)), Step("c", after=("b",)), Step("d", after=("a",)))


class Book:
    """Records in memory and the parts each step has now."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], StepRecord] = {}
        self.parts: dict[str, dict[str, Any]] = {step.name: {"spec:x": 1} for step in CHAIN}
        self.troubles: dict[str, str] = {}

    def parts_of(self, step: Step, done: Mapping[str, StepRecord]) -> dict[str, Any]:
        return {**self.parts[step.name], **{f"input:{name}": done[name].digest for name in step.after}}

    def current(
        self, step: Step, done: Mapping[str, StepRecord]
    ) -> tuple[dict[str, Any], StepRecord | None, str | None]:
        parts = self.parts_of(step, done)
        record = self.records.get((step.name, key_of(parts)))
        return parts, record, self.troubles.get(step.name) if record else None

    def do(self, digest: str = "") -> None:
        """Carry out every step, in order."""
        done: dict[str, StepRecord] = {}
        for number, step in enumerate(CHAIN):
            parts = self.parts_of(step, done)
            done[step.name] = StepRecord(
                step=step.name, key=key_of(parts), parts=parts, digest=digest + step.name, loop_id="l", finished=number
            )
            self.records[step.name, done[step.name].key] = done[step.name]

    def latest(self, step: str) -> StepRecord | None:
        return max((r for r in self.records.values() if r.step == step), key=lambda r: r.finished, default=None)

    def plan(self) -> dict[str, PlannedStep]:
        return {item.step: item for item in plan(CHAIN, self.current, self.latest)}

    def states(self) -> str:
        return " ".join(item.state for item in self.plan().values())


@pytest.fixture
def book() -> Book:
    return Book()


def test_nothing_recorded_runs_the_first_and_the_rest_follow(book: Book) -> None:
    assert book.states() == "run follow follow follow"
    planned = book.plan()
    assert planned["a"].reasons == ["never run"]
    assert planned["c"].reasons == ["after b"]


def test_a_source_that_is_not_there_is_a_reason(book: Book) -> None:
    book.parts["a"] |= {"file:here.csv": "ab", "file:data.csv": None}
    assert book.plan()["a"].reasons == ["never run", "file data.csv: not there"]


def test_all_recorded_is_all_done(book: Book) -> None:
    book.do()
    assert book.states() == "done done done done"
    assert all(item.record is not None for item in book.plan().values())


def test_a_change_runs_its_step_and_leaves_those_beside_it(book: Book) -> None:
    book.do()
    book.parts["b"] = {"spec:x": 2}
    assert book.states() == "done run follow done"
    assert book.plan()["b"].reasons == ["x: 1 -> 2"]


def test_a_missing_output_is_the_reason(book: Book) -> None:
    book.do()
    book.troubles["d"] = "output missing: data"
    assert book.states() == "done done done run"
    assert book.plan()["d"].reasons == ["output missing: data"]


def test_a_change_taken_back_is_done_again(book: Book) -> None:
    book.do()
    book.parts["a"] = {"spec:x": 2}
    assert book.states() == "run follow follow follow"
    book.parts["a"] = {"spec:x": 1}
    assert book.states() == "done done done done"


def test_planning_twice_says_the_same_and_changes_nothing(book: Book) -> None:
    book.do()
    book.parts["c"] = {"spec:x": 5}
    before = dict(book.records)
    assert book.plan() == book.plan()
    assert book.records == before


# --- the table of the loop's own steps


def test_every_step_comes_after_those_it_depends_on() -> None:
    names = [step.name for step in STEPS]
    assert all(names.index(before) < names.index(step.name) for step in STEPS for before in step.after)
    assert len(BY_NAME) == len(STEPS)


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_what_a_step_reads_is_in_the_spec(step: Step) -> None:
    for path in (*step.reads, *step.references):
        block: Any = Spec
        for key in path.removeprefix("-").split("."):
            assert key in block.model_fields, f"{step.name} reads {path}"
            annotation = block.model_fields[key].annotation
            annotation = get_args(annotation)[0] if get_origin(annotation) is list else annotation
            block = annotation if hasattr(annotation, "model_fields") else type("Leaf", (), {"model_fields": {}})


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_the_code_of_a_step_is_there(step: Step) -> None:
    for name in step.code:
        assert any(ROOT.glob(f"{name.replace('.', '/')}.py")), f"{step.name}: {name}"


def test_what_only_monitoring_reads_repeats_no_work() -> None:
    for step in STEPS:
        # The checks against the champion's data also leave out columns whose drift is expected.
        reads = set(step.reads) - ({"monitor.seasonal"} if step.name == "validate-prepared" else set())
        assert not any(path.split(".")[0] in ("monitor", "retrain") for path in reads)


@pytest.mark.parametrize("name", ["search", "train"])
def test_the_code_that_makes_tensors_decides_what_is_trained(name: str) -> None:
    assert {"code:models/data/encode.py", "code:models/data/unlabelled.py"} <= set(code_parts(BY_NAME[name].code))
