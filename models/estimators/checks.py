"""What a spec says of an estimator and cannot be: refused by `plan`, before anything runs and without an import."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import UsageError, did_you_mean
from models.estimators.rows import ROWS, EstimatorRow
from models.estimators.source import BOTH_FORMS, row_of_source
from models.installation import adding, adding_extra, version_of
from models.judge.goal_check import stated_task
from models.kinds.task import Task
from models.nets.catalogue import unused
from models.project_spec.blocks import Spec, Train
from models.project_spec.references import ESTIMATOR_PACKAGES, FAMILY

EXTRA = "estimators"
LIBRARIES = {
    "sklearn": ("scikit-learn>=1.6,<2", "skl2onnx>=1.20,<1.21"),
    "xgboost": ("xgboost-cpu>=3.2,<3.3", "onnxmltools>=1.16,<1.17"),
    "catboost": ("catboost>=1.2.10,<1.3",),
}
"""The distributions of a package and of what converts it, in the versions that were tried: those of pyproject.toml."""
_SAME = {"xgboost-cpu": "xgboost", "xgboost": "xgboost-cpu"}
"""Another distribution of the same package."""
_OF_RANKS = (
    *("ranks", "nodes", "parallel", "tensor", "stages", "replicas", "pipeline", "microbatches"),
    *("gradient_hook", "nccl", "shard_optimiser"),
)
"""Keys of `train` for nets on ranks."""


def check_form(net: str, key: str = "model.net") -> None:
    """Refuse a class of an estimator's package that is written in another form, and LightGBM's.

    Raises:
        UsageError: Says the right form.
    """
    package = net.replace(":", ".").partition(".")[0]
    if package == "lightgbm":
        raise UsageError(f"{key}: got {net}: LightGBM is a family of the product: say `net: trees`")
    if package == "scikit-learn":
        raise UsageError(f"{key}: got {net}, but Python calls the package sklearn: say sklearn in its place")
    module, _, name = net.rpartition(".")
    if ":" not in net and module:
        raise UsageError(f"{key}: got {net}, expected a colon before the class: say '{module}:{name}', in quotes")
    if ":" not in net or net.endswith(":"):
        raise UsageError(f"{key}: got {net}, expected {BOTH_FORMS}")


def check_estimator(spec: Spec, net: str, base: Path, key: str = "model.net") -> None:
    """Refuse what a spec says and the estimator cannot do.

    Args:
        spec: The project's.
        net: A reference to a class or a row.
        base: The folder that holds the spec.
        key: Where the spec names it.

    Raises:
        UsageError: Says the key, what was got, what was expected, and the cure.
    """
    check_installed(net, key)
    row = row_of_source(net, base, key)
    for name in _missing(row) if row.package == "file" else ():
        cure = adding_extra(EXTRA) if name in _of_extra() else adding(name)
        raise UsageError(f"{key}: {net}: its package {name} is not installed: {cure}")
    if row.output == "labels":
        raise UsageError(
            f"{key}: {net} answers with labels alone, and calibration, thresholds and ROC need probabilities: take "
            f"LogisticRegression or another, or return it within CalibratedClassifierCV from `estimator` of a row "
            f"./file.py:{FAMILY}"
        )
    check_task(row, net, stated_task(spec.data), key)
    _check_data(spec, row, net, key)
    _check_train(spec, net)


def check_installed(net: str, key: str = "model.net") -> None:
    """Refuse a class whose package, or what converts it, is missing or of a version that was not tried.

    Raises:
        UsageError: Says the version and the command that installs it.
    """
    from packaging.requirements import Requirement

    for line in LIBRARIES.get(net.partition(":")[0].partition(".")[0], ()):
        requirement = Requirement(line)
        version = version_of(requirement.name) or version_of(_SAME.get(requirement.name, requirement.name))
        if not version:
            raise UsageError(f"{key}: {net} needs {requirement}, which is not installed: {adding_extra(EXTRA)}")
        if not requirement.specifier.contains(version, prereleases=True):
            raise UsageError(f"{key}: {net} needs {requirement}, got {version}: {adding_extra(EXTRA)}")


def _missing(row: EstimatorRow) -> list[str]:
    """Return the modules and distributions of a row that are not installed."""
    modules = [name for name in row.modules if importlib.util.find_spec(name.partition(".")[0]) is None]
    distributions = [
        name for name in row.distributions if not version_of(name) and not version_of(_SAME.get(name, name))
    ]
    return modules + distributions


def _of_extra() -> list[str]:
    """Return the packages and distributions that the extra installs."""
    return [*ESTIMATOR_PACKAGES, *(line.partition(">")[0] for lines in LIBRARIES.values() for line in lines)]


def check_task(row: EstimatorRow, net: str, task: Task | None, key: str = "model.net") -> None:
    """Refuse a task that the estimator does not learn; None, which the data decides, is accepted.

    Raises:
        UsageError: Names an estimator of the same package that learns it.
    """
    if task is None or task in row.tasks:
        return
    fitting = [other.name for other in ROWS.values() if other.package == row.package and task in other.tasks]
    twins = {row.name.replace("Classifier", "Regressor"), row.name.replace("Regressor", "Classifier")}
    names = [name for name in fitting if name in twins] or [*fitting[:2], "trees"]
    raise UsageError(f"{key}: {net} learns {', '.join(row.tasks)}, but the task is {task}: take {' or '.join(names)}")


def check_arguments(row: EstimatorRow, net: str, arguments: Mapping[str, Any], key: str) -> None:
    """Refuse arguments that the constructor does not have, those that Loopline sets, and rounds that are no number.

    Args:
        row: From `row_of_source`.
        net: Its reference.
        arguments: Those of the spec.
        key: Where they stand in the spec.

    Raises:
        UsageError: Names the nearest argument, or the key of the spec that sets it.
    """
    free = [name for name in row.arguments or () if name not in row.owned]
    free += ["rounds"] * bool(row.rounds)
    for name, value in arguments.items():
        if name in row.owned:
            raise UsageError(f"{key}.{name}: no spec sets it: leave it out; {row.owned[name]}")
        if name not in free:
            cure = did_you_mean(name, free, f"expected one of {', '.join(free)}" if free else "remove it")
            raise UsageError(f"{key}.{name}: {net} has no argument {name!r}: {cure}")
        if row.rounds and name == "rounds" and (type(value) is not int or value < 1):
            raise UsageError(f"{key}.rounds: got {value!r}, expected a whole number above 0")


def _check_data(spec: Spec, row: EstimatorRow, net: str, key: str) -> None:
    data = spec.data
    if not row.weights and (data.weight is not None or spec.train.class_weights != "none"):
        where = "train.class_weights" if data.weight is None else "data.weight"
        raise UsageError(f"{where}: {net} takes no weights of rows: remove it, or take {_others(row, 'weights')}")
    if not row.quantile and (spec.goal.quantile is not None or data.quantiles):
        where = "data.quantiles" if data.quantiles else "goal.quantile"
        raise UsageError(f"{where}: {net} learns no quantile: take {_others(row, 'quantile')}")
    if row.own_split and not data.deals_rows:
        raise UsageError(
            f"{key}: {net} splits the rows that it learns from by chance, but data.split.by is {data.split.by}, so it "
            "would be tuned on rows like those it learns from: take an estimator that does not split, or trees"
        )


def _others(row: EstimatorRow, fact: str) -> str:
    """Return listed estimators with a fact that this one lacks, which learn what it learns."""
    listed = [other for other in ROWS.values() if getattr(other, fact) and {*row.tasks} <= {*other.tasks}]
    names = [other.name for other in listed if other.output != "labels"]
    return f"trees, {' or '.join(names[:2])}" if names else "trees"


def _check_train(spec: Spec, net: str) -> None:
    """Refuse settings of nets that are trained by gradient descent on ranks."""
    if spec.train.loss is not None:
        raise UsageError(
            f"train.loss: got {spec.train.loss}, but {net} has losses of its own: remove it, or take trees"
        )
    if spec.model.net != net:
        return  # others that `auto` chooses from may use them
    usual = Train()
    changed = [name for name in _OF_RANKS if getattr(spec.train, name) != getattr(usual, name)]
    for name in [*changed, *unused(net, spec.train.model_fields_set)]:
        raise UsageError(f"train.{name}: is for nets trained by gradient descent, but model.net is {net}: remove it")
