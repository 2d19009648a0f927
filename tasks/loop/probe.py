"""The probe of estimators that a spec names by reference: the first act of a search, or of a training without one.

It runs the team's own code, so `plan` leaves it out unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.judge.goal_check import stated_task
from models.kinds.task import Task
from models.project_spec.blocks import Spec
from models.project_spec.references import estimators_among
from models.training.families import families_of

if TYPE_CHECKING:
    from tasks.loop.loop import Inputs, Loop, StepResult
    from tasks.ranks.rank_pool import RankPool

    Act = Callable[[Inputs, Path], StepResult]

PROBE = "probe"
"""The key of a step's result with the largest difference between each estimator and its graph."""


def probed_estimators(spec: Spec) -> list[str]:
    """Return the references among the nets that the spec may train, which are probed."""
    return estimators_among(families_of(spec))


def probed_by(spec: Spec, step: str) -> list[str]:
    """Return the references that a step probes as its first act."""
    return probed_estimators(spec) if step == ("search" if spec.search.trials else "train") else []


def probe(pool: RankPool, spec: Spec, base: Path, task: Task | None = None) -> dict[str, float]:
    """Fit each estimator on drawn rows, convert it and compare, in a child process.

    Args:
        pool: Starts the child.
        spec: The project's.
        base: The folder of the spec.
        task: Of the prepared data; None: the one that the spec states, else all that the estimator learns.

    Returns:
        The largest difference between each estimator and its graph, by reference.

    Raises:
        LooplineError: The estimator does not learn the task, its graph differs, or its code raised.
    """
    tasks: Sequence[Task] = [name for name in (task or stated_task(spec.data),) if name]
    arguments = dict(spec.model.arguments)
    function = "models.estimators.probe:probe_tasks"
    return {
        net: pool.call(function, net=net, base=str(base), tasks=tasks, arguments=arguments)
        for net in probed_estimators(spec)
    }


def after_probe(loop: Loop, step: str) -> Callable[[Act], Act]:
    """Return a decorator of what a step does: its probe comes first, and its result says what the probe found."""

    def decorated(act: Act) -> Act:
        def act_after_probe(inputs: Inputs, folder: Path) -> StepResult:
            from models.data.preparation import Preparation  # NumPy, which `plan` does not need
            from tasks.loop.loop import StepResult

            task = Preparation.load(inputs["prepare"].folder).task
            differences = probe(loop.rank_pool, loop.spec, loop.project.folder, task)
            for net, difference in differences.items():
                loop.report.note(f"{PROBE}: {net}: its graph is {difference:.1g} apart from it at most")
            done = act(inputs, folder)
            return StepResult(done.outputs, {**done.result, PROBE: differences})

        return act_after_probe if probed_by(loop.spec, step) else act

    return decorated
