"""The row of an estimator from its reference: facts of the product's table, of a class's source, or of a team's file.

Nothing is imported, and nothing of a team's file runs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models.errors import UsageError, did_you_mean
from models.estimators.own_row import own_row
from models.estimators.rows import CLASSES, NUMBERS, ROWS, EstimatorRow, Output, general_row
from models.installation import version_of
from models.project_spec.references import FAMILY, sort_of_net
from models.project_spec.syntax import REQUIRED, definition, lineage, literal, names_in, names_of, parameters

BOTH_FORMS = (
    "a classifier or regressor by its package and class, such as sklearn.ensemble:ExtraTreesClassifier, or a torch net "
    "of your own, such as ./net.py:Net"
)
_TASKS = {"classifier": CLASSES, "regressor": NUMBERS}
_MIXINS = {"ClassifierMixin": "classifier", "RegressorMixin": "regressor"}


@dataclass(frozen=True)
class EstimatorClass:
    """What the source of an estimator's class says.

    `arguments` are those of its constructor with their defaults, `UNKNOWN` or `REQUIRED`. `output` is labels for a
    classifier without probabilities, or with them in some of its settings alone.
    """

    tasks: tuple[str, ...]
    arguments: Mapping[str, Any]
    takes_weights: bool
    output: Output


def row_of_source(reference: str, base: Path, key: str = "model.net") -> EstimatorRow:
    """Return the row of an estimator, whose `arguments` are never None.

    Args:
        reference: Of a class, such as `sklearn.ensemble:ExtraTreesClassifier`, or of a row, such as
            `./boosted.py:FAMILY`.
        base: The folder from which relative files start.
        key: Where the spec names it, for messages.

    Raises:
        UsageError: There is no such class or row, or it is none that learns.
    """
    return _READERS[sort_of_net(reference)](reference, base, key)


def installed_versions(row: EstimatorRow) -> dict[str, str]:
    """Return the version of each distribution of a row that is installed: of two builds of a library, one is."""
    versions = {name: version_of(name) for name in row.distributions}
    return {name: version for name, version in versions.items() if version}


def _row_of_class(reference: str, base: Path, key: str) -> EstimatorRow:
    del base
    module, _, name = reference.partition(":")
    facts = estimator_class(module, name)
    listed = ROWS.get(name)
    if facts is None or (listed is None and not module.startswith("sklearn")):
        raise _no_row(module, name, key)
    required = [argument for argument, default in facts.arguments.items() if default is REQUIRED]
    if required:
        raise UsageError(
            f"{key}: {reference} needs {required[0]!r}, which no spec can write: return the whole estimator from a "
            f"function of your own, `estimator` of a row ./file.py:{FAMILY}"
        )
    if listed is not None:
        return replace(listed, arguments=listed.arguments or tuple(facts.arguments))
    return general_row(name, facts.tasks, facts.arguments, facts.output, facts.takes_weights)


_READERS: dict[str, Callable[[str, Path, str], EstimatorRow]] = {"class": _row_of_class, "row": own_row}


def _no_row(module: str, name: str, key: str) -> UsageError:
    """Return the error of a class that does not exist, or is no estimator that can be exported."""
    package, reference = module.partition(".")[0], f"{module}:{name}"
    if definition(module, name) is None:
        return UsageError(f"{key}: {reference}: {package} has no such class there: {_nearest(package, module, name)}")
    if package == "sklearn":
        return UsageError(
            f"{key}: {reference} is no classifier or regressor, expected {BOTH_FORMS}; a pipeline comes from "
            f"`estimator` of a row ./file.py:{FAMILY}"
        )
    listed = " or ".join(f"{package}:{row.name}" for row in ROWS.values() if row.package == package)
    return UsageError(f"{key}: {reference} cannot be exported, expected {listed}, or {BOTH_FORMS}")


def _nearest(package: str, module: str, name: str) -> str:
    """Return the same class in another module, or the nearest one in any."""
    modules = [*(f"{package}.{part}" for part in names_in(package)), package]
    public_names = [f"{part}:{public}" for part in modules for public in names_in(part) if public[0].isupper()]
    same = [reference for reference in public_names if reference.endswith(f":{name}")]
    return did_you_mean(f"{module}:{name}", same or public_names, f"expected {BOTH_FORMS}", 0.4 if same else 0.75)


def estimator_class(module: str, name: str) -> EstimatorClass | None:
    """Return what the source says of a class; None if it is no classifier or regressor with a `fit`."""
    start = definition(module, name)
    if start is None or not isinstance(start.node, ast.ClassDef):
        return None
    nodes = [ancestor.node for ancestor in lineage(start) if isinstance(ancestor.node, ast.ClassDef)]
    kind, fit = _kind(nodes), next(_methods(nodes, "fit"), None)
    if kind not in _TASKS or fit is None:
        return None
    takes_weights, output = "sample_weight" in parameters(fit), _output(nodes, kind)
    return EstimatorClass(_TASKS[kind], _arguments(nodes), takes_weights, output)


def _kind(classes: Sequence[ast.ClassDef]) -> str:
    """Return the sort of an estimator: of the nearest class that says it; empty if none does."""
    kinds = (_MIXINS.get(node.name) or _assigned(node, "_estimator_type") for node in classes)
    return next((str(kind) for kind in kinds if kind is not None), "")


def _assigned(node: ast.ClassDef, name: str) -> Any:
    statements = (part for part in node.body if isinstance(part, ast.Assign) and name in names_of(part))
    return next((literal(part.value) for part in statements), None)


def _arguments(classes: Sequence[ast.ClassDef]) -> dict[str, Any]:
    """Return the arguments of a constructor, and those of its bases that it passes on by `**kwargs`."""
    arguments: dict[str, Any] = {}
    for constructor in _methods(classes, "__init__"):
        arguments = {**parameters(constructor), **arguments}
        if constructor.args.kwarg is None:
            break
    return arguments


def _output(classes: Sequence[ast.ClassDef], kind: str) -> Output:
    if kind == "regressor":
        return "scores"
    method = next(_methods(classes, "predict_proba"), None)
    is_certain = method is not None and not any("available_if" in ast.unparse(mark) for mark in method.decorator_list)
    return "probabilities" if is_certain else "labels"


def _methods(classes: Iterable[ast.ClassDef], name: str) -> Iterator[ast.FunctionDef]:
    for node in classes:
        yield from (part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == name)
