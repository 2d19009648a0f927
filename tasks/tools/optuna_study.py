"""Optuna with its ask-and-tell interface: one owner process per study; trials of a killed owner are marked as failed.

Studies are stored in a journal file of the workspace, or in the database that LOOPLINE_OPTUNA_STORAGE names.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.errors import LeaseLostError, StoreError, UsageError, one_line
from models.files import read_json, write_json
from models.project_spec.search import Dimension, Search
from models.training.search_space import Trial, grid_point
from tasks.host.reconnecting import reconnect
from tasks.host.store_addresses import OPTUNA_STORAGE as STORAGE
from tasks.host.store_addresses import without_password
from tasks.host.workspace import Workspace

if TYPE_CHECKING:
    import optuna
    from optuna import Study as Study

STUDY_FILE = "study.json"
"""The note in a search's work folder: the name of its study, and the loop that opened it last."""
REASON = "loopline.reason"
KILLED = "killed"
SECONDS = "loopline.seconds"
RUN, PAGE = "loopline.run", "loopline.page"
"""A trial's run in MLflow, by name, and the address of its loop's page."""
POSITION = "loopline.position"
COSTS = "loopline.costs"
SCORE = "loopline.score"
WORK = "loopline.work_s"
# Trials of a search over families that are drawn at random before TPE models them; the first of each family is fixed.
_STARTUP = 6
FEWEST = 20
"""Trials from which on the importance of parameters is told: the best tenth of fewer is a single trial."""


def storage(workspace: Workspace) -> Any:
    """Return the storage of all studies of the workspace."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = os.environ.get(STORAGE)
    if url:
        with reaching_studies():
            stored = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
            if not stored.engine.url.drivername.startswith("sqlite"):
                reconnect(stored.engine)
            return stored
    path = workspace.state / "optuna" / "journal.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock_obj=_JournalLock(path)))


def _unchecked() -> None:
    """Check nothing: no other process uses the study."""


@contextlib.contextmanager
def reaching_studies(confirm: Callable[[], None] = _unchecked) -> Iterator[None]:
    """Report an absent or broken database of studies as a StoreError.

    Args:
        confirm: Raises a LeaseLostError if another process has taken over the loop; that one ended this one's trials.
    """
    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "UpdateFinishedTrialError" in kinds:
            confirm()
        if kinds & {"StorageInternalError", "SQLAlchemyError"}:
            where = without_password(os.environ.get(STORAGE, "of the workspace"))
            cause = one_line(error.__cause__ or error)
            raise StoreError(
                f"Optuna's storage {where} cannot be used: {cause}. Finished trials are kept: "
                f"run again when it is back, or set {STORAGE} to another"
            ) from error
        raise


class _JournalLock:
    """A lock that the kernel releases when its holder dies; Optuna's own lock would block the next run for 30 s.

    It removes a torn last line of a killed writer: Optuna would append to it and then reject the journal.
    """

    def __init__(self, path: Path) -> None:
        import filelock

        self._path, self._lock = path, filelock.FileLock(f"{path}.flock")

    def acquire(self) -> bool:
        self._lock.acquire(poll_interval=0.005)
        with self._path.open("rb+") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read(1) not in (b"", b"\n"):
                file.truncate(self._path.read_bytes().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self._lock.release()


@dataclass
class RunningTrial:
    """A running trial.

    `known` has the values that a killed trial of the same parameters reported, by epoch or fold. The trial ends when
    its work is more than `limit_s`, in seconds of a reference core.
    """

    trial: optuna.Trial
    params: dict[str, Any]
    slot: int
    run: str
    folder: Path
    known: dict[int, float]
    is_pruned: bool = True
    limit_s: float = math.inf
    work_s: float = 0.0

    def __post_init__(self) -> None:
        for step, value in self.known.items():
            self.trial.report(value, step)

    def report(self, value: float, step: int) -> None:
        """Report a value to Optuna, once per step."""
        if step not in self.known:
            self.trial.report(value, step)

    def should_prune(self, work_s: float = 0.0) -> bool:
        """Return whether the trial ends after so much work, or by the pruner: not the epochs of different families."""
        return work_s > self.limit_s or (self.is_pruned and self.trial.should_prune())


class StudyName(NamedTuple):
    """The name of a study, and what its trials' runs have behind their numbers to differ from those of another."""

    study: str
    run_suffix: str


def name_study(folder: Path, project: str, loop_id: str) -> StudyName:
    """Name the study of a search by the key of its inputs, and note the name in its work folder for the reaper.

    A loop that was interrupted keeps its id, and may go on with corrected code: that search has another key, so it
    has a study of its own, and runs of its own in MLflow.

    Args:
        folder: The work folder of the search; its name is the key.
        project: The project's name: studies of all projects share one storage.
        loop_id: The loop.

    Raises:
        StoreError: The folder cannot be written.
    """
    name = f"{project}-{folder.name}"
    notes = (read_json(path) for path in folder.parent.glob(f"*/{STUDY_FILE}"))
    has_another = any(note.get("loop") == loop_id and note.get("study") != name for note in notes)
    write_json(folder / STUDY_FILE, {"study": name, "loop": loop_id})
    return StudyName(name, f"-{folder.name[:8]}" if has_another else "")


def open_study(
    workspace: Workspace,
    name: str,
    search: Search,
    direction: str,
    attributes: Mapping[str, str],
    confirm: Callable[[], None] = _unchecked,
    metric: str = "",
) -> optuna.Study:
    """Return the study with this name, created at first use; trials that a dead owner left running become failed.

    Args:
        workspace: The workspace.
        name: The name of the study.
        search: Names the pruner.
        direction: `maximize` or `minimize`.
        attributes: User attributes of the study.
        confirm: Raises a LeaseLostError if another process has taken over the loop.
        metric: The name of the trials' value, on charts.
    """
    import optuna

    study = optuna.create_study(
        study_name=name,
        storage=storage(workspace),
        direction=direction,
        pruner=_pruner(search),
        load_if_exists=True,
    )
    for key, value in attributes.items():
        study.set_user_attr(key, value)
    if metric and study.metric_names != [metric]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([metric])
    _fail_left(workspace, study, confirm)
    return study


def fail_open_trials(workspace: Workspace, name: str, confirm: Callable[[], None]) -> list[int]:
    """Mark the running trials of a study with a dead owner as failed, and return their numbers.

    A study that was never created or whose database is not reachable is left to the next `open_study`.

    Args:
        workspace: The workspace.
        name: The name of the study.
        confirm: Raises a LeaseLostError if another process has taken over the loop.
    """
    import optuna

    try:
        with reaching_studies():
            study = optuna.load_study(study_name=name, storage=storage(workspace))
            return _fail_left(workspace, study, confirm)
    except LeaseLostError:
        raise
    except (KeyError, StoreError):
        return []


def _fail_left(workspace: Workspace, study: optuna.Study, confirm: Callable[[], None]) -> list[int]:
    """Mark the study's running trials as failed; return their numbers.

    The trials are listed before `confirm`: whoever takes the loop over draws new ones, which are not in the list. So a
    pause of this process between the check and the marks harms none of them.
    """
    import optuna

    running = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    confirm()
    for trial in running:
        fail_running(workspace, study, trial.number)
    return [trial.number for trial in running]


def fail_running(workspace: Workspace, study: optuna.Study, number: int) -> None:
    """Mark a trial whose owner died as failed and killed, so that it does not count as a run trial.

    Nothing happens if the trial has ended: the process that took over the loop has marked it.
    """
    import optuna

    trials = storage(workspace)
    trial = trials.get_trial_id_from_study_id_trial_number(trials.get_study_id_from_name(study.study_name), number)
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
        trials.set_trial_user_attr(trial, REASON, KILLED)
        study.tell(number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)


def tell(study: optuna.Study, trial: optuna.Trial, value: float | None, state: str) -> None:
    """Report the end of a trial to Optuna: COMPLETE with its value, or PRUNED or FAIL without.

    Nothing happens if the trial has ended: the process that took over the loop has marked it.
    """
    import optuna

    if state == "COMPLETE":
        study.tell(trial, value, skip_if_finished=True)
    else:
        study.tell(trial, state=optuna.trial.TrialState[state], skip_if_finished=True)


def ask(
    study: optuna.Study,
    search: Search,
    space: Mapping[str, Dimension],
    seed: int,
    position: int,
    fixed: Mapping[str, Any] | None = None,
) -> optuna.Trial:
    """Return the next trial; its sampler is seeded by `position`, so that a resumed search draws the same values.

    Args:
        study: The study.
        search: Names the sampler.
        space: All dimensions.
        seed: Of the search.
        position: How many trials were asked for before.
        fixed: Values that are not drawn. With several families, `model.net` is always among them: TPE then
            models the dimensions of each family by themselves (`group`).
    """
    drawn = zlib.crc32(f"{seed}/{position}".encode())
    if search.sampler == "grid":
        study.sampler = _fixed(grid_point(space, seed, position), 0)
    elif fixed is not None and len(fixed) > 1:
        study.sampler = _fixed(fixed, drawn)
    elif fixed is not None:
        study.sampler = _among_families(search, fixed, drawn)
    else:
        study.sampler = _sampler(search, space, drawn, position)
    trial = study.ask()
    trial.set_user_attr(POSITION, position)
    return trial


def killed_before(study: optuna.Study, params: Mapping[str, Any]) -> dict[int, float]:
    """Return the reported values, by step, of killed trials with the same parameters."""
    return {
        step: value
        for trial in study.get_trials(deepcopy=False)
        if trial.user_attrs.get(REASON) == KILLED and trial.params == params
        for step, value in trial.intermediate_values.items()
    }


def trials_of(study: optuna.Study) -> list[Trial]:
    """Return the finished trials, without killed ones."""
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    return [
        Trial.model_validate(
            {
                "number": trial.number,
                "state": states[trial.state.name],
                "params": trial.params,
                "value": trial.value if trial.state.name != "FAIL" else None,
                "reason": trial.user_attrs.get(REASON, ""),
                "seconds": trial.user_attrs.get(SECONDS, 0.0),
                "costs": trial.user_attrs.get(COSTS),
                **trial.user_attrs.get(SCORE, {}),
                "work_s": trial.user_attrs.get(WORK, 0.0),
                "epochs": [value for _, value in sorted(trial.intermediate_values.items())],
            }
        )
        for trial in study.get_trials(deepcopy=False)
        if trial.state.name in states and trial.user_attrs.get(REASON) != KILLED
    ]


def importances(study: optuna.Study) -> dict[str, float]:
    """Return the importance of each parameter; empty with fewer than `FEWEST` complete trials.

    Source: PED-ANOVA, Watanabe et al. (2023), https://arxiv.org/abs/2304.10255: it compares the best tenth of the
    trials with all. The import takes a second, because Optuna loads scikit-learn with it.
    """
    import optuna

    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < FEWEST or len({trial.value for trial in complete}) < 2:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few trials of a family: its settings have little to show
            figures = optuna.importance.get_param_importances(study, evaluator=evaluator)
        return {str(name): float(value) for name, value in figures.items()}
    except (ValueError, RuntimeError):
        return {}  # every trial drew the same values


def _sampler(search: Search, space: Mapping[str, Dimension], seed: int, position: int) -> Any:
    from optuna import samplers

    makers: dict[str, Any] = {
        "tpe": samplers.TPESampler,
        "random": samplers.RandomSampler,
        "gp": samplers.GPSampler,
        "cmaes": samplers.CmaEsSampler,
        "nsga2": samplers.NSGAIISampler,
    }
    if search.sampler == "cmaes" and any(dimension.choices for dimension in space.values()):
        raise UsageError("search.sampler: cmaes cannot draw `choices`: give ranges, or use tpe")
    sampler = makers[search.sampler](seed=seed)
    if search.sampler == "cmaes":
        _number_by(sampler, position)
    return sampler


def _number_by(sampler: Any, position: int) -> None:
    """Let CMA-ES use the trial's position for its seed instead of the trial's number, which shifts after a kill."""
    sample = sampler.sample_relative

    def sample_relative(study: optuna.Study, trial: optuna.trial.FrozenTrial, space: dict[str, Any]) -> dict[str, Any]:
        counted = copy.copy(trial)
        counted.number = position
        drawn: dict[str, Any] = sample(study, counted, space)
        return drawn

    sampler.sample_relative = sample_relative


def _fixed(params: Mapping[str, Any], seed: int) -> Any:
    """Return a sampler for fixed values: Optuna's grid sampler stops the study, which ask and tell does not support."""
    from optuna import samplers

    return _with_fixed(params, samplers.RandomSampler(seed=seed))


def _among_families(search: Search, fixed: Mapping[str, Any], seed: int) -> Any:
    """Return a sampler for the dimensions of one family. Source: `group` in Optuna's documentation of TPESampler."""
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    if search.sampler == "random":
        return _fixed(fixed, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        tpe = samplers.TPESampler(seed=seed, multivariate=True, group=True, n_startup_trials=_STARTUP)
    return _with_fixed(fixed, tpe)


def _with_fixed(params: Mapping[str, Any], base: Any) -> Any:
    from optuna import samplers
    from optuna.exceptions import ExperimentalWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return samplers.PartialFixedSampler(dict(params), base)


def _pruner(search: Search) -> Any:
    from optuna import pruners

    return {
        "median": lambda: pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
        "hyperband": _hyperband,
        "halving": pruners.SuccessiveHalvingPruner,
        "none": pruners.NopPruner,
    }[search.pruner]()


def _hyperband() -> Any:
    """Return a Hyperband pruner that assigns brackets by positions, because a kill shifts the trials' numbers."""
    from optuna import pruners

    class ByPosition(pruners.HyperbandPruner):  # type: ignore[misc]
        def _get_bracket_id(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
            counted = copy.copy(trial)
            counted.number = trial.user_attrs.get(POSITION, trial.number)
            return int(super()._get_bracket_id(study, counted))

    return ByPosition()
