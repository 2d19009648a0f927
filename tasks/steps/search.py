"""Search: Optuna's trials, each trained by the rank pool, each a nested run; a killed search resumes."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import LooplineError, TrainingError, UsageError
from models.files import read_json, write_bytes, write_json
from models.metrics.metrics import METRICS, measure, metric_name, resolve_metric
from models.nets.catalogue import net_name
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Model, Train
from models.project_spec.search import Dimension
from models.training.costs.summary import Costs, total
from models.training.job import EpochReport, TrainingResult
from models.training.search_space import (
    Trial,
    best_of,
    check_space,
    mean_score,
    suggest,
    trials_owed,
    usual_space,
    with_params,
)
from tasks.host import memory
from tasks.loop.inputs import Input
from tasks.loop.job_uploads import uploaded
from tasks.loop.jobs import job
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.loop.origin import TrainingStart, begin
from tasks.state.outbox import LOOP_RUN
from tasks.tools import optuna_study

if TYPE_CHECKING:
    from models.data.preparation import Preparation
    from tasks.tools.optuna_study import OpenTrial, Study

BEST_FILE = "best.json"
TRIALS_FILE = "trials.json"


def search(loop: Loop) -> tuple[StepRecord, bool]:
    """Find the best configuration; `trials: 0` takes the spec's own, or `search.settings`.

    Raises:
        TrainingError: Every trial failed; the message has the commonest cause.
        UsageError: The space names a setting that the net or `train` does not have.
        DataError: The goal's metric is undefined for the test targets.
        StoreError: The database of studies is not reachable.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        memory.release()  # memory of the data steps: from here on ranks train beside this process
        _check_goal(loop, inputs["prepare"])
        if loop.spec.search.trials:
            start = begin(loop, inputs)
            space = loop.spec.search.space or usual_space(loop.spec, fixed=start.origin is not None)
            if space:
                with optuna_study.reaching_studies():
                    return _Search(loop, inputs, folder, start, space).run()
            loop.report.note(
                "search: the spec sets every key that is searched by default, so there is nothing to search: "
                "name other keys in search.space"
            )
        settings = loop.spec.search.settings or {}
        write_json(folder / BEST_FILE, settings)
        return StepResult([folder / BEST_FILE], {"trials": 0, **({"params": settings} if settings else {})})

    return loop.carry_out("search", act)


def _check_goal(loop: Loop, prepared: Input) -> None:
    """Check before any training that the goal's metric is defined on the test targets."""
    from models.data import feeds

    goal = loop.spec.goal.reference
    preparation = _preparation(prepared)
    if goal in METRICS and preparation.task == "regression":
        target = feeds.targets(prepared.folder, "test")
        measure(METRICS[goal].of(preparation.target.outputs), target, target)


def _preparation(prepared: Input) -> Preparation:
    from models.data.preparation import Preparation

    return Preparation.load(prepared.folder)


@dataclass
class _OpenTrial:
    """A running trial; `known` has the values that a killed trial of the same parameters reported, by epoch or fold."""

    trial: OpenTrial
    params: dict[str, Any]
    slot: int
    run: str
    folder: Path
    known: dict[int, float]

    def __post_init__(self) -> None:
        for step, value in self.known.items():
            self.trial.report(value, step)

    def report(self, value: float, step: int) -> None:
        """Report a value to Optuna, once per step."""
        if step not in self.known:
            self.trial.report(value, step)


class _Search:
    """One search: the study, its worker slots, and the number of remaining trials."""

    def __init__(
        self, loop: Loop, inputs: Inputs, folder: Path, start: TrainingStart, space: Mapping[str, Dimension]
    ) -> None:
        self._loop = loop
        self._inputs = inputs
        self._folder = folder
        self._spec = loop.spec.search
        self._start, self._space = start, space
        self._lock = threading.Lock()
        self._slots = list(range(self._spec.workers))
        self._taken: set[Path] = set()
        self._began = time.monotonic()
        goal = loop.spec.goal
        made = _preparation(inputs["prepare"])
        metric = resolve_metric(goal.reference, made.task, loop.project.folder, goal.direction, made.target.outputs)
        self._direction, self._metric = metric.direction, metric.name
        check_space(self._space, net_name(loop.spec.model.net, loop.spec.data.kind))
        self._study = self._open_study()

    def run(self) -> StepResult:
        """Run the remaining trials, then choose the best."""
        trials = optuna_study.trials_of(self._study)
        self._position = self._ended = len(trials)
        owed = trials_owed(self._spec, self._space, trials)
        if trials:
            self._loop.report.note(f"search: {len(trials)} trials are done, {owed} are left")
        with ThreadPoolExecutor(self._spec.workers, thread_name_prefix="trial") as pool:
            running = [pool.submit(self._one) for _ in range(owed)]
            try:
                for future in as_completed(running):
                    future.result()
            except BaseException:
                for future in running:
                    future.cancel()
                raise
        return self._settle()

    def _open_study(self) -> Study:
        """Open the study, named after the loop that began it; a later loop with the same search continues it."""
        note = self._folder / "study.json"
        name = read_json(note).get("study")
        if not name:
            if note.exists():
                self._loop.report.note(
                    f"search: {note} was damaged, and which study it named is lost: a new one begins"
                )
            name = self._loop.id
            if store := self._loop.step_cache.store:
                name = store.claim(self._folder, "study", name.encode()).decode()
            write_json(note, {"study": name})
        attributes = {"loopline.loop_id": self._loop.id, "loopline.project": self._loop.spec.name}
        return optuna_study.open_study(self._loop.workspace, name, self._spec, self._direction, attributes)

    def _one(self) -> None:
        timeout = self._spec.timeout_s
        if timeout and time.monotonic() - self._began > timeout:
            return
        with self._lock:
            trial = optuna_study.ask(self._study, self._spec, self._space, self._loop.spec.train.seed, self._position)
            self._position += 1
            params = suggest(trial, self._space)
            slot, folder = self._slots.pop(0), self._take_folder(trial.number, params)
        run = f"trial-{trial.number}"
        self._loop.outbox.start_run(run, f"{self._loop.id}/{run}", {"loopline.loop_id": self._loop.id}, parent=LOOP_RUN)
        self._loop.outbox.params(run, params)
        began = time.perf_counter()
        spent: list[Costs] = []
        try:
            known = optuna_study.killed_before(self._study, params)
            value, state = self._train(_OpenTrial(trial, params, slot, run, folder, known), spent)
            reason = ""
            if not math.isfinite(value):
                raise TrainingError(f"{self._metric} is not defined on the validation rows: got {value}")
        except UsageError:
            optuna_study.fail_running(self._study, trial.number)
            raise  # the spec is wrong, not this trial's values
        except LooplineError as error:
            value, state, reason = None, "FAIL", str(error)
        with self._lock:
            trial.set_user_attr(optuna_study.SECONDS, round(time.perf_counter() - began, 3))
            if reason:
                trial.set_user_attr(optuna_study.REASON, reason)
            if spent:
                trial.set_user_attr(optuna_study.COSTS, total(spent).model_dump())
            optuna_study.tell(self._study, trial, value, state)
            self._ended += 1
            self._slots.append(slot)
            self._taken.remove(folder)
        self._loop.outbox.metrics(run, {f"cost/{name}": figure for name, figure in total(spent).figures().items()})
        self._log_end(run, trial.number, value, state, reason)
        if store := self._loop.step_cache.store:
            store.forget_checkpoints(folder)

    def _take_folder(self, number: int, params: Mapping[str, Any]) -> Path:
        """Return a folder named by the trial's values: after a kill, a trial with equal values finds its checkpoint."""
        name = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:16]
        folder = self._folder / "trials" / name
        folder = folder if folder not in self._taken else folder.with_name(f"{name}-{number}")
        self._taken.add(folder)
        return folder

    def _train(self, trial: _OpenTrial, spent: list[Costs]) -> tuple[float, str]:
        """Return value and state of a trial; with folds, the mean over the folds, pruned by the folds so far.

        The cost of each fold is appended to `spent`.
        """
        model, train = with_params(self._start.arguments(self._loop.spec.model), self._loop.spec.train, trial.params)
        # A trial runs on this machine; other nodes are used only to train the best configuration.
        train = train.on_one_machine().model_copy(update={"epochs": self._spec.epochs or max(1, train.epochs // 2)})
        folds = self._spec.folds
        values: list[float] = []
        results: list[TrainingResult] = []
        for index in range(folds):
            result = self._fit(trial, model, train, (index, folds) if folds > 1 else None)
            values.append(result.value)
            results.append(result)
            spent += [result.costs] if result.costs else []
            if result.pruned:
                return result.value, "PRUNED"
            if folds > 1:
                trial.report(sum(values) / len(values), index)
                if trial.trial.should_prune() and index + 1 < folds:
                    return sum(values) / len(values), "PRUNED"
        trial.trial.set_user_attr(optuna_study.SCORE, mean_score(results))
        return sum(values) / len(values), "COMPLETE"

    def _fit(self, trial: _OpenTrial, model: Model, train: Train, fold: tuple[int, int] | None) -> TrainingResult:
        task = job(
            self._loop,
            self._inputs["prepare"],
            trial.folder / f"fold-{fold[0]}" if fold else trial.folder,
            model,
            train,
            checkpoints=True,
            sample=self._spec.sample,
            fold=fold,
            workers=min(self._spec.workers, self._spec.trials),
            slot=trial.slot,
            start=self._start.origin,
        )

        def on_epoch(epoch: EpochReport) -> bool:
            self._loop.outbox.metrics(trial.run, epoch.values, epoch.epoch)
            if fold is not None or epoch.stage != "train":
                return True
            trial.report(epoch.values[f"val_{metric_name(task.metric)}"], epoch.epoch)
            return not trial.trial.should_prune()

        with uploaded(self._loop, task.folder):
            return self._loop.rank_pool.run(task, on_epoch)

    def _log_end(self, run: str, number: int, value: float | None, state: str, reason: str) -> None:
        if value is not None:
            self._loop.outbox.metrics(run, {"value": value})
        self._loop.outbox.tags(
            run, {"loopline.trial_state": state.lower(), **({"loopline.reason": reason} if reason else {})}
        )
        self._loop.outbox.end_run(run, "FAILED" if state == "FAIL" else "FINISHED")
        shown = reason.splitlines()[0] if reason else f"{value:.4f}{' (pruned)' if state == 'PRUNED' else ''}"
        self._loop.report.progress("search", self._ended, self._spec.trials, f"trial {number}: {shown}")

    def _settle(self) -> StepResult:
        trials = optuna_study.trials_of(self._study)
        best = best_of(trials, self._direction)
        importances = optuna_study.importances(self._study)
        write_json(self._folder / BEST_FILE, best.params)
        write_json(self._folder / TRIALS_FILE, [trial.model_dump() for trial in trials])
        self._log_pictures(trials, importances)
        counts = {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
        result = {
            "study": self._study.study_name,
            "trials": len(trials),
            **counts,
            "best_trial": best.number,
            "best_value": best.value,
            "params": best.params,
            "importances": importances,
            "costs": total(trial.costs for trial in trials).model_dump(),
        }
        return StepResult([self._folder / BEST_FILE], result)

    def _log_pictures(self, trials: list[Trial], importances: Mapping[str, float]) -> None:
        from models.report import training_figures

        valued = [(trial.params, trial.value) for trial in trials if trial.value is not None]
        states = ["fail" if trial.state == "failed" else trial.state for trial in trials]
        log = [path for path, dimension in self._space.items() if dimension.log]
        pictures = {
            "search-history.svg": training_figures.search_history(
                [trial.value for trial in trials], states, self._direction, self._metric
            ),
            "search-parallel.svg": training_figures.parallel_coordinates(
                [params for params, _ in valued],
                [value for _, value in valued],
                self._metric,
                self._direction,
                log,
            ),
        }
        if importances:
            pictures["search-importance.svg"] = training_figures.importance_bars(importances)
        for name, content in pictures.items():
            write_bytes(self._folder / "figures" / name, content)
            self._loop.outbox.artifact(LOOP_RUN, self._folder / "figures" / name, "search")
