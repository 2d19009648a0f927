"""Plan: estimates memory and time of a training on a cluster, from the prepared data's shapes and the spec's net."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.data.preparation import Preparation
from models.errors import UsageError
from models.nets.catalogue import by_descent
from models.nets.sizes import Sizes
from models.planner.machines import detect_machine, read_machine
from models.project_spec.blocks import Spec
from models.training.families import families_of, nets_of
from tasks.host.workspace import Project
from tasks.loop.jobs import processor_name
from tasks.loop.probe import probe, probed_estimators
from tasks.loop.step_cache import StepCache
from tasks.ranks.rank_pool import RankPool
from tasks.state.machine_speeds import read_speeds

if TYPE_CHECKING:
    from models.planner.planning import PlanningResult


def plan_cluster(project: Project, spec: Spec, cluster: str) -> PlanningResult:
    """Compare every way to train the project's net on a cluster.

    Args:
        project: The project; the shapes of the net's inputs are read from its prepared data.
        spec: The project's spec: net, batch, precision, optimiser.
        cluster: A preset, a file, or `detect`.

    Raises:
        UsageError: The cluster does not exist, no data is prepared yet, or the net is not trained on ranks.
        UserCodeError: The net cannot be run on shapes alone.
    """
    net = _net(project, spec)
    if not (project.prepared / "preparation.json").exists():
        raise UsageError(
            f"{project.prepared}: no prepared data, whose shapes the net is built for: "
            f"`loopline run {spec.name}` prepares it"
        )
    from models.planner.candidates import Candidate
    from models.planner.memory import TrainingShape
    from models.planner.planning import plan
    from models.planner.profile import Profiler

    machine = detect_machine(spec.train.precision) if cluster == "detect" else read_machine(cluster)
    sizes = Sizes.of(Preparation.load(project.prepared), net)
    flash = machine.kind == "cuda"
    train = spec.train.model_copy(update={"precision": machine.precision(spec.train.precision)})
    if cluster == "detect" or "efficiency" not in machine.model_fields_set:
        processor = processor_name() if cluster == "detect" else None
        speeds = read_speeds(project.workspace)
        machine = machine.learnt_from(speeds, train.precision, net, train.compile is True, processor)
    model = spec.model.model_copy(update={"net": net})
    profiler = Profiler(model, sizes, project.folder, train.precision, flash)
    return plan(profiler, machine, TrainingShape.of(train, machine.kind == "cpu"), Candidate.of(train))


def probe_at_once(project: Project, spec: Spec) -> dict[str, float]:
    """Probe the spec's estimators: return how far each is from its graph at most, by reference.

    Raises:
        UsageError: There is none, or one does not learn the task.
        LooplineError: A graph differs, or an estimator's code raised.
    """
    if not probed_estimators(spec):
        raise UsageError(
            f"--probe: model.net is {spec.model.net}, and the spec names no estimator by reference: leave it out"
        )
    prepared = (project.prepared / "preparation.json").exists()
    task = Preparation.load(project.prepared).task if prepared else None
    with RankPool() as pool:
        return probe(pool, spec, project.folder, task)


def _net(project: Project, spec: Spec) -> str:
    """Return the net that the last search chose; of an ensemble, and before the first, the one trained on ranks.

    Raises:
        UsageError: None is trained on ranks.
    """
    families = families_of(spec)
    record = StepCache(project, spec).records.latest("search") if len(families) > 1 else None
    if record is not None:
        families = nets_of(spec, record.result.get("params", {})) or families
    on_ranks = by_descent(families)
    if not on_ranks:
        raise UsageError(
            f"model.net: {families[0]} is fitted in one process: there is nothing to plan; name another net"
        )
    return on_ranks[0]
