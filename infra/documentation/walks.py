"""Draws what happens on a run, a request, a trigger and a promotion, from what each file calls of the others.

A walk names files and nothing else. Which file calls which, and by which function, is read from the code. A file that
no other one of its walk calls is an error, unless something begins there.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.documentation.drawing import place, read

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 2
"""Functions that a box names; for more it ends with `...`."""


@dataclass(frozen=True)
class Walk:
    """The files through which one thing goes, and those of them at which a command, a request or a process begins."""

    title: str
    about: str
    begins: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One file calls a function or makes an object of another one, or starts it as a process."""

    caller: str
    called: str
    name: str
    is_process: bool = False


WALKS = (
    Walk(
        "A run",
        "`loopline run` opens a flow, which calls the steps in their order. A step whose record is valid returns at "
        "once. Search and training hand a job to a launcher; its ranks are drawn further below.",
        ("flows.commands.run",),
        (
            "flows.commands.run",
            "flows.local_run",
            "flows.train",
            "flows.prefect.steps",
            "tasks.loop.lifecycle",
            "tasks.loop.loop",
            "tasks.steps.ingest",
            "tasks.steps.validate",
            "tasks.steps.prepare",
            "tasks.steps.version",
            "tasks.steps.profile",
            "tasks.steps.search",
            "tasks.steps.search_choice",
            "tasks.steps.train",
            "tasks.steps.export",
            "tasks.steps.judge",
            "tasks.steps.importances",
            "tasks.steps.rivals",
            "tasks.steps.register",
            "tasks.steps.promote",
            "tasks.steps.card",
            "tasks.steps.card_decision",
            "tasks.steps.card_families",
            "tasks.loop.step_cache",
            "tasks.tools.sources",
            "tasks.tools.expectations",
            "models.data.prepare",
            "tasks.tools.dvc_repo",
            "tasks.tools.optuna_study",
            "tasks.ranks.launcher",
            "models.judge.decide",
            "tasks.mlflow.onnx_model",
            "tasks.loop.champion",
            "models.report.card",
        ),
    ),
    Walk(
        "A training",
        "The rank pool starts one process a rank from the fork server. Each trains its part and reports each epoch.",
        ("tasks.ranks.rank_pool",),
        (
            "tasks.ranks.rank_pool",
            "models.distributed.forkserver",
            "models.training.rank",
            "models.training.stages",
            "models.training.loop",
            "models.nets.catalogue",
            "models.training.by_rounds.rounds",
            "models.training.by_rounds.estimators",
            "models.training.linear",
            "models.training.session",
            "models.training.evaluate",
            "models.distributed.parallel",
            "models.nets.build",
            "models.training.checkpoints.saver",
            "models.training.batches.examples",
            "models.training.batches.example_set",
        ),
    ),
    Walk(
        "A request",
        "The middleware checks host and size. The state of a worker holds what limits, answers and logs. A record is "
        "in the write-ahead log, `state/segments`, before its answer is sent.",
        ("tasks.serve.app",),
        (
            "tasks.serve.app",
            "tasks.serve.middleware",
            "tasks.serve.scoring",
            "tasks.serve.feedback",
            "tasks.serve.state",
            "tasks.serve.answering",
            "tasks.serve.access",
            "tasks.serve.rate_limit",
            "tasks.serve.batcher",
            "tasks.release.loaded_versions",
            "models.inference.loaded_model",
            "tasks.serve.prediction_logger",
            "tasks.state.segments",
        ),
    ),
    Walk(
        "A prediction becomes a row",
        "The compactor moves what servers wrote to a Delta table, and labels join it. The next loop reads the labelled "
        "rows beside those of the source.",
        ("tasks.serve.compactor", "flows.commands.label", "tasks.steps.ingest"),
        (
            "tasks.serve.compactor",
            "flows.commands.label",
            "tasks.steps.ingest",
            "tasks.operations.compact",
            "tasks.operations.label",
            "tasks.state.ingest_segments",
            "tasks.state.segments",
            "tasks.state.add_labels",
            "tasks.state.predictions",
            "tasks.state.delta.delta_log",
            "tasks.state.feedback",
            "models.feedback.feedback",
        ),
    ),
    Walk(
        "A trigger",
        "A person, new data or an alarm of monitoring sends an event. Prefect keeps it, and begins the flow `retrain` "
        "by the automation that the deployment made of the spec. The policy decides; only then the steps run.",
        (
            "flows.commands.trigger",
            "flows.monitor",
            "flows.prefect.deployments",
            "tasks.operations.compact",
            "flows.retrain",
        ),
        (
            "flows.commands.trigger",
            "flows.monitor",
            "tasks.operations.compact",
            "flows.prefect.deployments",
            "flows.retrain",
            "tasks.operations.arrivals",
            "tasks.operations.monitor",
            "models.monitoring.alarms",
            "tasks.platform.open_signals",
            "tasks.prefect.automations",
            "tasks.prefect.events",
            "tasks.operations.retrain",
            "models.triggers.policy",
            "tasks.loop.decisions",
            "flows.train",
        ),
    ),
    Walk(
        "A promotion",
        "The step, or a person's command, moves the alias by compare-and-swap and writes the journal. Each server "
        "reads the alias, fetches the version, verifies its files and tries it in a process of its own, before it "
        "answers. The guard rolls it back if its errors, latency or metric say so.",
        ("tasks.steps.promote", "flows.commands.promote", "tasks.serve.__main__"),
        (
            "tasks.steps.promote",
            "flows.commands.promote",
            "tasks.serve.__main__",
            "tasks.loop.champion",
            "tasks.mlflow.registry",
            "tasks.prefect.events",
            "tasks.release.controller",
            "tasks.release.registry_watcher",
            "tasks.release.rollback_guard",
            "models.serving.auto_rollback",
            "tasks.release.fetch_and_verify",
            "tasks.release.smoke_test",
            "tasks.release.registry_jobs",
            "tasks.mlflow.model_cache",
            "tasks.mlflow.registry_reader",
            "models.inference.loaded_model",
        ),
    ),
)


def path_of(module: str) -> Path:
    """Return the file of a module, such as `tasks/serve/app.py` of `tasks.serve.app`.

    Raises:
        ValueError: There is none.
    """
    stem = ROOT / module.replace(".", "/")
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return path
    raise ValueError(f"infra/documentation/walks.py: no module {module}: name the one that took its place")


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text())


def calls(module: str, others: tuple[str, ...]) -> Iterator[Call]:
    """Yield what a module uses of other ones, annotations apart, and which it starts as processes."""
    tree = _tree(module)
    modules, names = _imported(tree, others)
    annotations = {id(node) for node in _annotations(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if (started := text.partition(":")[0]) in others and started != module:
                yield Call(module, started, "", is_process=True)
            case ast.Name(id=name) if name in names and id(node) not in annotations and _acts(*names[name]):
                yield Call(module, *names[name])
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                if id(node) not in annotations and _acts(modules[name], attribute):
                    yield Call(module, modules[name], attribute)


def _annotations(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.AST):
                yield from ast.walk(part)


def _imported(tree: ast.Module, others: tuple[str, ...]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return which local names are other modules, and which are names of them."""
    modules, names = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                if f"{node.module}.{one.name}" in others:
                    modules[one.asname or one.name] = f"{node.module}.{one.name}"
                elif node.module in others:
                    names[one.asname or one.name] = (node.module, one.name)
    return modules, names


def _acts(module: str, name: str) -> bool:
    """Return whether a name of a module is a function, a class with methods, or a table of its functions or classes."""
    body = _tree(module).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    acting = functions | {node.name for node in body if isinstance(node, ast.ClassDef)}
    for node in body:
        match node:
            case ast.ClassDef(name=own) if own == name:
                inner = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
                return any(one == "__call__" or not one.startswith("_") for one in inner)
            case (
                ast.Assign(targets=[ast.Name(id=own)], value=value)
                | ast.AnnAssign(target=ast.Name(id=own), value=ast.expr() as value)
            ) if own == name:
                return any(isinstance(one, ast.Name) and one.id in acting for one in ast.walk(value))
    return name in functions


def drawing(walk: Walk) -> str:
    """Return the flowchart of a walk: a box a file with the functions that are called of it, dashed to a new process.

    Raises:
        ValueError: No file of the walk calls one of its files, and nothing begins there.
    """
    found = [call for module in walk.files for call in calls(module, walk.files) if call.called != module]
    for module in walk.files:
        if module not in walk.begins and not any(call.called == module for call in found):
            raise ValueError(
                f"infra/documentation/walks.py: {walk.title}: no file of it calls {module}: name the one that does"
            )
    ids = {module: f"f{number}" for number, module in enumerate(walk.files)}
    lines = []
    for module, name in ids.items():
        called = list(dict.fromkeys(call.name for call in found if call.called == module and call.name))
        names = ", ".join(called[:SHOWN]) + ", ..." * (len(called) > SHOWN)
        lines.append(f'  {name}["{short(module)}{": " * bool(names)}{names}"]')
    started = {(call.caller, call.called) for call in found if call.is_process}
    for begin, end in dict.fromkeys((call.caller, call.called) for call in found):
        lines.append(f"  {ids[begin]} {'-. starts .->' if (begin, end) in started else '-->'} {ids[end]}")
    charts = [f"flowchart {direction}\n" + "\n".join(lines) + "\n" for direction in ("LR", "TD")]
    return min(charts, key=lambda chart: place(read(chart))[0])


def file_of(module: str) -> str:
    """Return the file of a module as text, such as `tasks/serve/app.py`."""
    return str(path_of(module).relative_to(ROOT))


def short(module: str) -> str:
    """Return the folder and the name of a module, such as `serve/app` of `tasks.serve.app`."""
    return "/".join(module.split(".")[-2:])


def page(note: str) -> str:
    """Return the page of the walks: each with its drawing, and what its files are for."""
    parts = [
        f"# Walks through the code\n\n{note}\nFor engineers who look for the place of a change. A box is a file, with "
        "the functions that are called of it; an arrow leads from the file that calls to the one that is called, a "
        "dashed one to a process that it starts. The boxes were chosen by hand, the arrows are read from the code.\n"
    ]
    for walk in WALKS:
        rows = "\n".join(f"| `{file_of(module)}` | {_purpose(module)} |" for module in walk.files)
        parts.append(
            f"## {walk.title}\n\n{walk.about}\n\n```mermaid\n{drawing(walk)}```\n\n| file | is |\n|---|---|\n{rows}\n"
        )
    return "\n".join(parts) + "\nNext: [the layers](layers.md)\n"


def _purpose(module: str) -> str:
    first = (ast.get_docstring(_tree(module)) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")
