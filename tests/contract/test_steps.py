"""A step reads what it declares: the flow, the table of the steps and the code of each step say the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.pipeline.keys import code_parts
from models.pipeline.steps import BY_NAME, STEPS, Step
from tests.structure.nodes import walk

UNDECLARED = re.compile(r"\bloop\.(done|ran|step_cache|place|refresh)\b|\bproject\.(raw|prepared)\b")
"""Ways to what other steps left that do not go by the declared inputs."""
MAKES = {"ingest": r"project\.raw", "prepare": r"project\.prepared", "judge": r"loop\.place"}
"""A step may name the place where it leaves its own files."""
NOT_IN_THE_RESULT = {
    "ingest": {"name", "data"},  # it refuses and notes by them; what it leaves is the source and the labelled rows
    "version": {"data.source"},  # MLflow is told of it each time, also when the step is done
    "search": {"goal"},  # of which it reads the two settings that are declared
    "train": {"goal"},
    "export": {"serve"},  # the three
    "register": {
        "data.target_name",
        "description",
        "model.net",
        "train.seed",
        "model_dump",
        "model_dump_json",
    },  # papers
}
"""What the code of a step names of the spec beside what is declared, and why the result does not follow from it."""
READ_BY_ITS_OWNER = {"source", "remote"}
"""A source is read as the spec names it, the remote as DVC knows it."""
REFUSES_ONLY = {"models.planner.batch_check"}
"""Code that decides whether a training starts, and not what comes of it: so it is in no key."""


class Code:
    """Functions and classes under tasks/ that a step's function leads to, followed through imports within tasks/."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, ast.Module] = {}

    def of(self, module: str, name: str) -> str:
        """The source of a definition and of all that it leads to."""
        seen: dict[tuple[str, str], str] = {}
        todo = [(module, name)]
        while todo:
            place = todo.pop()
            node = self._definition(*place)
            if place in seen or node is None:
                continue
            seen[place] = ast.unparse(node)
            names = {inner.id for inner in walk(node) if isinstance(inner, ast.Name)}
            todo += [(place[0], other) for other in names] + list(self._imported(place[0], names))
        return "\n".join(seen.values())

    def _read(self, module: str) -> ast.Module:
        if module not in self._modules:
            self._modules[module] = ast.parse(self._root.joinpath(*module.split(".")).with_suffix(".py").read_text())
        return self._modules[module]

    def _definition(self, module: str, name: str) -> ast.AST | None:
        defined = (node for node in self._read(module).body if isinstance(node, ast.FunctionDef | ast.ClassDef))
        return next((node for node in defined if node.name == name), None)

    def _imported(self, module: str, names: set[str]) -> Iterator[tuple[str, str]]:
        """The definitions in the steps' own helpers; the runner's are behind `Inputs`."""
        for node in walk(self._read(module)):
            if isinstance(node, ast.ImportFrom) and node.module in ("tasks.loop.jobs", "tasks.loop.origin"):
                yield from ((node.module, alias.name) for alias in node.names if alias.name in names)


@pytest.fixture(scope="module")
def flow(root: Path) -> ast.Module:
    return ast.parse((root / "flows" / "train.py").read_text())


@pytest.fixture(scope="module")
def acts(flow: ast.Module) -> dict[str, tuple[str, str, str]]:
    """By the flow's name for a step: the step, its module and its function."""
    modules = {
        alias.asname or alias.name: f"tasks.steps.{alias.name}"
        for node in flow.body
        if isinstance(node, ast.ImportFrom) and node.module == "tasks.steps"
        for alias in node.names
    }
    made = {}
    for node in flow.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Name(id="step"),
                    args=[ast.Attribute(value=ast.Name(id=module), attr=act), ast.Constant(value=step), *_],
                ),
            ):
                made[name] = (step, modules[module], act)
    return made


@pytest.fixture(scope="module")
def code(root: Path, acts: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    """The code of each step."""
    reader = Code(root)
    return {step: reader.of(module, act) for step, module, act in acts.values()}


def test_the_flow_takes_the_steps_in_the_order_of_the_table(
    flow: ast.Module, acts: dict[str, tuple[str, str, str]]
) -> None:
    (trip,) = (node for node in flow.body if isinstance(node, ast.FunctionDef) and node.name == "round_trip")
    calls = [node for statement in trip.body for node in walk(statement) if isinstance(node, ast.Call)]
    assert [acts[ast.unparse(call.func)][0] for call in calls] == [step.name for step in STEPS]
    assert {ast.unparse(argument) for call in calls for argument in call.args} == {"loop"}


def test_what_a_step_reads_was_done_before_it() -> None:
    names = [step.name for step in STEPS]
    for position, step in enumerate(STEPS):
        assert {*step.after} <= {*names[:position]}, step.name
        assert {*step.results} <= {*step.after}, step.name


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_reads_what_it_declares_and_nothing_else(step: Step, code: dict[str, str]) -> None:
    text = code[step.name]
    assert f"carry_out('{step.name}', act)" in text
    named = {*re.findall(r"\binputs\[['\"]([\w-]+)['\"]\]", text)}
    for group in re.findall(r"for name in \(([^)]*)\)", text) if "inputs[name]" in text else []:
        named |= {name for name in re.findall(r"'([\w-]+)'", group) if name in BY_NAME}
    assert named == {*step.after}
    assert {*re.findall(r"\bexternal\('(\w+)'\)", text)} == {*step.external} - READ_BY_ITS_OWNER
    ways = {found.group() for found in UNDECLARED.finditer(text)}
    assert {way for way in ways if not re.fullmatch(MAKES.get(step.name, "-"), way)} == set()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_reads_of_the_spec_what_it_declares(step: Step, code: dict[str, str]) -> None:
    declared = {path for path in step.reads if not path.startswith("-")} | NOT_IN_THE_RESULT.get(step.name, set())
    read = re.findall(r"\bspec\.(\w+(?:\.\w+)*)", code[step.name])
    assert {path for path in read if not any(f"{path}.".startswith(f"{name}.") for name in declared)} == set()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_declares_the_code_that_it_names_for_other_processes(step: Step, code: dict[str, str]) -> None:
    named = {*re.findall(r"'(models(?:\.\w+)+):\w+'", code[step.name])} - REFUSES_ONLY
    parts = code_parts(step.code)
    assert {name for name in named if f"code:{name.replace('.', '/')}.py" not in parts} == set()
