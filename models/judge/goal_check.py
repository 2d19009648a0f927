"""Checks of a spec's goal: its metric and its positive class fit the task, as far as that is known before any run."""

from __future__ import annotations

from pathlib import Path

from models.errors import UsageError, did_you_mean
from models.kinds.data_kind import PerDataKind
from models.kinds.task import TASKS, Task
from models.project_spec.blocks import Data, Spec
from models.project_spec.references import is_own_code

_TASK_OF_KIND: PerDataKind[Task | None] = {
    "table": None,
    "image": None,
    "series": "regression",
    "text": "language",
}


def check_goal(spec: Spec, base: Path) -> None:
    """Refuse a metric or a positive class that the spec alone shows to be wrong.

    Raises:
        UsageError: No such metric, not one for the task, or one that is never as good as `goal.good_enough`.
        DataError: A positive class, and not two classes.
    """
    _check_metric(spec, base)
    _check_positive(spec)


def _check_metric(spec: Spec, base: Path) -> None:
    """Check the metric: by the task if the spec or the kind of data decides it, else by its name alone."""
    name = spec.goal.reference
    if name is None:
        return
    if is_own_code(name):
        from models.metrics.own_metric import read_metric

        read_metric(name, base, stated_task(spec.data), spec.goal.direction)
        return
    from models.metrics.metrics import METRICS, costs_of, quantile_of, resolve_metric
    from models.metrics.ranking import cutoff_of

    _check_reachable(spec.goal.good_enough, name)
    short = (cutoff_of(name) or (name,))[0]
    task = stated_task(spec.data)
    if task is not None:
        resolve_metric(name, task, base, spec.goal.direction)
    elif short in METRICS and METRICS[short].is_of_groups:
        raise UsageError(
            f"goal.metric: got {spec.goal.metric}, which is for rankings, but data.task is not set: say `task: ranking`"
        )
    elif name not in METRICS and quantile_of(name) is None and costs_of(name) is None:
        cure = did_you_mean(name, METRICS, f"expected one of {', '.join(sorted(METRICS))}")
        raise UsageError(f"goal.metric: got {name!r}, {cure}, or `./file.py:function` of your own")


def _check_reachable(good_enough: float | None, metric: str) -> None:
    """Refuse a goal beyond the end of a ready metric: 1 where more is better, 0 where less is."""
    if good_enough is None:
        return
    from models.metrics.metrics import METRICS
    from models.metrics.ranking import cutoff_of

    ready = METRICS.get((cutoff_of(metric) or (metric,))[0])
    is_more = ready is not None and ready.direction == "maximize"
    if good_enough > 1 if is_more else good_enough < 0:
        best = "1 at most" if is_more else "0 at least"
        raise UsageError(
            f"goal.good_enough: got {good_enough:g}, which no model reaches: {metric} is {best}: name a value within"
        )


def _check_positive(spec: Spec) -> None:
    """Refuse a positive class where data or metric are known to have not two classes."""
    positive = spec.goal.positive
    if positive is None:
        return
    from models.data.target_forms import check_positive
    from models.metrics.metrics import is_of_numbers

    several: Task | None = "multilabel" if len(spec.data.targets) > 1 else None
    of_numbers: Task | None = "regression" if is_of_numbers(spec.goal.reference) else None
    check_positive(positive, stated_task(spec.data) or several or of_numbers or "binary")


def stated_task(data: Data) -> Task | None:
    """Return the task that the spec or its kind of data states; None where the values of the target decide."""
    return "quantile" if data.quantiles else data.task or _TASK_OF_KIND[data.kind]


def check_goal_of_target(spec: Spec, path: Path, base: Path) -> None:
    """Refuse a metric or a positive class that is not for the task which the first rows of a table make certain.

    Raises:
        UsageError: The metric is for other tasks, or never as good as `goal.good_enough`.
        DataError: A positive class, and the target is a number.
    """
    name, positive, good_enough = spec.goal.reference, spec.goal.positive, spec.goal.good_enough
    if (name is None and positive is None and good_enough is None) or (
        task := certain_task_of(spec.data, path)
    ) is None:
        return
    if positive is not None and TASKS[task].is_number:
        from models.data.target_forms import check_positive

        check_positive(positive, task)
    from models.metrics.metrics import resolve_metric
    from models.metrics.own_metric import read_metric

    if name is None:
        _check_reachable(good_enough, TASKS[task].metric)
    elif is_own_code(name):
        read_metric(name, base, task, spec.goal.direction)
    else:
        resolve_metric(name, task, base, spec.goal.direction)


def certain_task_of(data: Data, path: Path) -> Task | None:
    """Return the task that the first rows of a local table make certain; None if others may change it."""
    from models.data.target import certain_task
    from models.sources.row_batches import first_values

    return certain_task(first_values(path, data.targets[0]), data)
