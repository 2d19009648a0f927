"""Search: Optuna's trials, each trained by the rank pool or on a place, each a nested run; a killed search resumes."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.data import feeds
from models.data.preparation import Preparation
from models.errors import LooplineError, TrainingError, UsageError
from models.files import write_bytes, write_json
from models.kinds.data_kind import PerDataKind
from models.metrics.metrics import METRICS, Metric, is_of_numbers, measure, metric_name, metric_of
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.report.training_figures import search_figures
from models.training.checkpoints.finished import read_finished
from models.training.costs.summary import Costs, total
from models.training.costs.table_memory import check_prepared, fitted_rows
from models.training.costs.work import net_s, work_s
from models.training.families import SearchSpace, families_of, search_space
from models.training.job import EpochReport, InitialWeights, TrainingJob, TrainingResult
from models.training.search_course import (
    PATIENCE,
    TOLERANCE,
    Comparison,
    FirstRound,
    first_round,
    is_stalled,
    left_s,
    next_family,
)
from models.training.search_space import (
    NET,
    Trial,
    bests_of,
    check_space,
    mean_score,
    mean_value,
    trials_owed,
    with_params,
)
from tasks.host import memory
from tasks.loop.inputs import Input
from tasks.loop.job_uploads import uploaded
from tasks.loop.jobs import job, job_owner, run_here, with_flips, within_budget, within_ceiling
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.loop.origin import begin
from tasks.loop.probe import after_probe
from tasks.platform.services import loop_address
from tasks.prefect.flow_runs import is_cancelled
from tasks.ranks.places import find_search_place
from tasks.ranks.rank_pool import StoppedWaitingError
from tasks.ranks.trials import PlacedTrials
from tasks.state.outbox import LOOP_RUN
from tasks.steps.search_choice import Choice, ModelChoice, keep_families
from tasks.tools import optuna_study
from tasks.tools.optuna_study import RunningTrial

if TYPE_CHECKING:
    from tasks.tools.optuna_study import Study

BEST_FILE = "best.json"
TRIALS, TRIALS_FILE = "trials", "trials.json"
FIRST_ROUND = "loopline.first_round"
MOST_MEMBERS: PerDataKind[int] = {"table": 2, "image": 1, "series": 1, "text": 1}
"""Models of one family in an ensemble of a table, at most; of a series one: see docs/decisions/0042."""


def search(loop: Loop) -> tuple[StepRecord, bool]:
    """Find the best configuration; `trials: 0` takes the spec's own, or `search.settings`.

    Raises:
        TrainingError: Every trial failed; the message has the commonest cause.
        UsageError: The space names a setting that the net or `train` does not have, or a family cannot hold the rows.
        DataError: The goal's metric is undefined for the test targets.
        StoreError: The database of studies is not reachable.
    """

    @after_probe(loop, "search")
    def act(inputs: Inputs, folder: Path) -> StepResult:
        memory.release()  # memory of the data steps: from here on ranks train beside this process
        base, trials, prepared = loop.project.folder, loop.spec.search.trials, inputs["prepare"]
        _check_goal(loop.spec, prepared)
        preparation = Preparation.load(prepared.folder)
        check_prepared(loop.spec, preparation, base)
        start = begin(loop, inputs, families_of(loop.spec)) if trials else None
        metric = metric_of(loop.spec.goal, preparation, base)
        num_train = fitted_rows(loop.spec.train.rows, preparation.rows["train"])
        is_of_texts = bool(preparation.inputs) and all(column.IS_SCORED for column in preparation.inputs)
        name = metric.name if trials else ""
        space = with_flips(loop, prepared, search_space(loop.spec, start, num_train, name, base, is_of_texts))
        if trials:
            if space.dimensions:
                with optuna_study.reaching_studies(loop.confirm):
                    return _Search(loop, inputs, folder, start, space, metric).run()
            loop.report.note(
                "search: the spec sets every key that is searched by default, or there is none, so there is nothing to "
                "search: name keys in search.space"
            )
        settings = within_ceiling(loop, prepared, folder, space).settings(loop.spec.search.settings or {})
        write_json(folder / BEST_FILE, settings)
        return StepResult([folder / BEST_FILE], {"trials": 0, **({"params": settings} if settings else {})})

    return loop.carry_out("search", act)


def _check_goal(spec: Spec, prepared: Input) -> None:
    """Check before any training that the goal's metric is defined on the test targets."""
    goal, preparation = spec.goal.reference, Preparation.load(prepared.folder)
    if goal in METRICS and is_of_numbers(goal):
        target = feeds.targets(prepared.folder, "test")
        measure(METRICS[goal].of(preparation.target.outputs), target, target)


class _Search:
    """One search: the study, its worker slots, and the number of remaining trials."""

    def __init__(
        self, loop: Loop, inputs: Inputs, folder: Path, start: InitialWeights | None, space: SearchSpace, metric: Metric
    ) -> None:
        self._loop = loop
        self._inputs = inputs
        self._folder = folder
        self._spec, self._start, self._space = loop.spec.search, start, space
        self._lock = threading.Lock()
        self._slots = list(range(self._spec.workers))
        self._taken: set[Path] = set()
        self._began, self._undefined_folds = time.monotonic(), 0
        preparation = Preparation.load(inputs["prepare"].folder)
        self._goal, self._direction, self._metric = metric, metric.direction, metric.name
        for net, family in self._space.families.items():
            check_space(family.dimensions, net)
        self._num_inputs = preparation.num_numeric + len(preparation.cardinalities)
        self._place = place = find_search_place(loop.workspace, self._spec)
        self._placed = place and PlacedTrials(place, job_owner(loop), loop.report.note, is_cancelled)
        self._study = self._open_study()
        self._first_round = FirstRound(families=list(self._space.families), out={})

    def run(self) -> StepResult:
        """Run the remaining trials, then choose the best; where there is a choice, one of each family first."""
        trials, note = optuna_study.trials_of(self._study), self._loop.report.note
        self._position = self._ended = len(trials)
        owed = trials_owed(self._spec, self._space.dimensions, trials)
        if trials:
            note(f"search: {len(trials)} trials are done, at most {owed} are left")
        if self._spec.workers > 1:
            note(f"search: {self._spec.workers} trials at once cannot be reproduced; one at a time can")
        with ThreadPoolExecutor(self._spec.workers, thread_name_prefix="trial") as pool:
            if self._space.is_choice:
                first = min(owed, max(0, len(self._space.families) - len(trials)))
                alone = min(first, 0 if trials else 1)  # the budget follows from its work
                self._run_trials(pool, alone)
                budget = self._budget_s(optuna_study.trials_of(self._study))
                self._space = within_budget(self._loop.rank_pool, self._space, budget, self._first_job)
                self._run_trials(pool, first - alone)
                self._first_round = self._judge_first_round()
                owed -= first
            else:
                self._space = within_budget(self._loop.rank_pool, self._space, 0.0, self._first_job)
            self._run_trials(pool, owed)
        return self._settle()

    def _run_trials(self, pool: ThreadPoolExecutor, count: int) -> None:
        running = [pool.submit(self._one) for _ in range(count)]
        try:
            for future in as_completed(running):
                future.result()
        except BaseException as error:
            for future in running:
                future.cancel()
            if self._placed:
                self._placed.stop(error)
            elif not isinstance(error, Exception):
                self._loop.rank_pool.stop()  # else this thread waits until the running trials end
            raise

    def _judge_first_round(self) -> FirstRound:
        """Return which families go on, judged once for each study."""
        stored = self._study.user_attrs.get(FIRST_ROUND)
        if stored is not None:
            return FirstRound.model_validate(stored)
        trials = optuna_study.trials_of(self._study)[: len(self._space.families)]
        tried = [trial.params[NET] for trial in trials if trial.state == "complete"]
        judged = FirstRound(families=tried or [*self._space.families], out={})
        compared = self._compared(self._candidates(trials, 1))
        if compared is not None:
            judged = first_round(compared.scores, compared.constant, self._direction, self._metric)
        for family, reason in judged.out.items():
            self._loop.report.note(f"search: no more trials of {self._space.names[family]}: {reason}")
        self._study.set_user_attr(FIRST_ROUND, judged.model_dump())
        return judged

    def _candidates(self, trials: list[Trial], count: int) -> dict[str, Trial]:
        """Return each family's best trials, at most so many, by name; a trial over folds has no model of its own."""
        complete = [trial for trial in trials if trial.state == "complete" and self._spec.folds == 1]
        return bests_of(complete, list(self._space.families), self._direction, count)

    def _compared(self, candidates: Mapping[str, Trial], is_joined: bool = False) -> Comparison | None:
        """Compare the models of trials on validation; None if there are fewer than two."""
        if len(candidates) < 2:
            return None
        jobs = {name: self._model_of(trial).as_json() for name, trial in candidates.items()}
        reference = "models.export.validation_scores:validation_scores"
        return Comparison.model_validate(self._loop.rank_pool.call(reference, jobs=jobs, is_joined=is_joined))

    def _fixed_values(self) -> dict[str, Any] | None:
        """Return the values of the next trial that are not drawn; None if all are."""
        if not self._space.is_choice:
            return self._space.begins_with if self._position == 0 else None
        first_trials = self._first_trials()
        if self._position < len(first_trials):
            return first_trials[self._position]
        turn = self._position - len(first_trials)
        trials = optuna_study.trials_of(self._study)
        return {NET: next_family(self._space.tuned(self._first_round.families), trials, self._direction, turn)}

    def _first_trials(self) -> list[dict[str, Any]]:
        """Return the values of the trials of which none is drawn: one of each family, then the starts of the better."""
        firsts = [self._space.first(family) for family in self._space.families]
        return firsts + [start for family in self._first_round.families for start in self._space.starts(family)]

    def _is_over(self) -> bool:
        """Return whether no further trial should begin: the time is up, or nothing improves."""
        timeout = self._spec.timeout_s
        if timeout and time.monotonic() - self._began > timeout:
            return True
        is_choice, trials = self._space.is_choice, optuna_study.trials_of(self._study)
        first_trials = self._first_trials() if is_choice else []
        is_first = self._position < len(first_trials) and self._spec.budget_s is None
        if left_s(trials, self._budget_s(trials), first_trials[self._position][NET] if is_first else None) <= 0:
            return True
        patience = self._spec.patience or self._space.patience or (PATIENCE if is_choice else None)
        tolerance = TOLERANCE * self._first_round.gain
        return patience is not None and is_stalled(trials, self._direction, patience, tolerance, len(first_trials))

    def _budget_s(self, trials: list[Trial]) -> float:
        """Return the budget of the search in work; infinite without one."""
        return self._spec.budget_s or self._space.budget_s(trials)

    def _limit_s(self) -> float:
        """Return the work at which the next trial ends: what is left, after each family has had its first ones."""
        if not self._space.is_choice or self._position < len(self._first_trials()):
            return math.inf
        trials = optuna_study.trials_of(self._study)
        return left_s(trials, self._budget_s(trials))

    def _open_study(self) -> Study:
        """Open the study of these inputs: a search that was killed, and a later loop with the same key, continue it."""
        loop = self._loop
        study, self._run_suffix = optuna_study.name_study(self._folder, loop.spec.name, loop.id)
        attributes = {"loopline.loop_id": loop.id, "loopline.project": loop.spec.name}
        return optuna_study.open_study(
            loop.workspace, study, self._spec, self._direction, attributes, loop.confirm, f"val_{self._metric}"
        )

    def _one(self) -> None:
        with self._lock:
            if self._is_over():
                return
            self._loop.confirm()  # the study is named by its inputs: who took the loop over draws from it by now
            seed, fixed, limit_s = self._loop.spec.train.seed, self._fixed_values(), self._limit_s()
            trial = optuna_study.ask(self._study, self._spec, self._space.dimensions, seed, self._position, fixed)
            self._position += 1
            params = self._space.suggest(trial)
            slot, folder = self._slots.pop(0), self._take_folder(trial.number, params)
        run = f"trial-{trial.number}{self._run_suffix}"
        self._loop.outbox.start_run(run, f"{self._loop.id}/{run}", {"loopline.loop_id": self._loop.id}, parent=LOOP_RUN)
        self._loop.outbox.params(run, self._space.settings(params))
        trial.set_user_attr(optuna_study.RUN, f"{self._loop.id}/{run}")
        trial.set_user_attr(optuna_study.PAGE, loop_address(self._loop.workspace, self._loop.id))
        began = time.perf_counter()
        spent: list[Costs] = []
        opened: RunningTrial | None = None
        try:
            killed = optuna_study.killed_before(self._study, params)
            opened = RunningTrial(trial, params, slot, run, folder, killed, not self._space.is_choice, limit_s)
            value, state = self._train(opened, spent)
            reason = ""
            if not math.isfinite(value):
                raise TrainingError(f"{self._metric}: got {value} on all validation rows, expected a finite number")
        except (UsageError, StoppedWaitingError):
            optuna_study.fail_running(self._loop.workspace, self._study, trial.number)
            raise  # the spec is wrong, or a signal ended the loop: neither says anything of this trial's values
        except LooplineError as error:
            value, state, reason = None, "FAIL", str(error)
        with self._lock:
            self._loop.confirm()  # who took the loop over meanwhile ends this trial
            trial.set_user_attr(optuna_study.SECONDS, round(time.perf_counter() - began, 3))
            if reason:
                trial.set_user_attr(optuna_study.REASON, reason)
            if opened is not None:
                trial.set_user_attr(optuna_study.WORK, opened.work_s)
            if spent:
                trial.set_user_attr(optuna_study.COSTS, total(spent).model_dump())
            optuna_study.tell(self._study, trial, value, state)
            self._ended += 1
            self._slots.append(slot)
            self._taken.remove(folder)
        self._loop.outbox.metrics(run, {f"cost/{name}": figure for name, figure in total(spent).figures().items()})
        family = self._space.names.get(params.get(NET, ""), "")
        self._log_end(run, f"trial {trial.number} {family}".rstrip(), value, state, reason)
        if store := self._loop.step_cache.store:
            store.checkpoints(folder).forget(self._loop.epoch)

    def _take_folder(self, number: int, params: Mapping[str, Any]) -> Path:
        """Return a folder named by the trial's values: after a kill, a trial with equal values finds its checkpoint."""
        folder = self._folder_of(params)
        folder = folder if folder not in self._taken else folder.with_name(f"{folder.name}-{number}")
        self._taken.add(folder)
        return folder

    def _folder_of(self, params: Mapping[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:16]
        return self._folder / TRIALS / name

    def _train(self, trial: RunningTrial, spent: list[Costs]) -> tuple[float, str]:
        """Return value and state of a trial; with folds, the mean over the folds, pruned by the folds so far.

        A fold on which the metric is undefined, such as one of a single class, does not count. The cost of each fold is
        appended to `spent`.
        """
        folds = self._spec.folds
        results: list[TrainingResult] = []
        for index in range(folds):
            result = self._fit(trial, (index, folds) if folds > 1 else None)
            results += [result] if math.isfinite(result.value) or folds == 1 else []
            spent += [result.costs] if result.costs else []
            trial.work_s += work_s(result, self._num_inputs)
            if result.pruned:
                return result.value, "PRUNED"
            if folds > 1 and results:
                trial.report(mean_value(results), index)
                if trial.should_prune() and index + 1 < folds:
                    return mean_value(results), "PRUNED"
        self._undefined_folds = folds - len(results)
        trial.trial.set_user_attr(optuna_study.SCORE, mean_score(results))
        return mean_value(results), "COMPLETE"

    def _job(self, params: Mapping[str, Any], folder: Path, fold: tuple[int, int] | None, slot: int) -> TrainingJob:
        """Return the training job of a trial, or of one of its folds."""
        model, train = with_params(self._loop.spec.model, self._loop.spec.train, self._space.settings(params))
        usual = self._space.trial_epochs(train.epochs)
        train = train.on_one_machine().model_copy(update={"epochs": self._spec.epochs or usual, "refit": False})
        return job(
            self._loop,
            self._inputs["prepare"],
            folder / f"fold-{fold[0]}" if fold else folder,
            model,
            train,
            workers=min(self._spec.workers, self._spec.trials),
            start=self._start,
            place=self._place,
        ).model_copy(update={"sample": self._spec.sample, "fold": fold, "slot": 0 if self._place else slot})

    def _first_job(self, net: str) -> TrainingJob:
        return self._job(self._space.first(net), self._folder, None, 0)

    def _model_of(self, trial: Trial) -> TrainingJob:
        """Return the finished job of a complete trial, which is trained once more if another machine trained it."""
        task = self._job(trial.params, self._folder_of(trial.params), None, 0)
        if read_finished(task) is None:
            self._loop.report.note(f"search: the model of trial {trial.number} is not on this machine: trained again")
            with uploaded(self._loop, task.folder):
                (self._placed or self._loop.rank_pool).run(task, lambda _: True)
        return task

    def _fit(self, trial: RunningTrial, fold: tuple[int, int] | None) -> TrainingResult:
        task = self._job(trial.params, trial.folder, fold, trial.slot)

        def on_epoch(epoch: EpochReport) -> bool:
            self._loop.outbox.metrics(trial.run, epoch.values, epoch.epoch)
            if fold is not None or epoch.stage != "train" or epoch.epoch < max(trial.known, default=0):
                return True  # a killed trial was not ended at an epoch that it has left behind
            trial.report(epoch.values[f"val_{metric_name(task.metric)}"], epoch.epoch)
            return not trial.should_prune(epoch.epoch * net_s(epoch.values.get("flops", 0.0)))

        with uploaded(self._loop, task.folder):
            if self._placed:
                return self._placed.run(task, on_epoch)
            return run_here(self._loop.rank_pool, task, on_epoch)

    def _log_end(self, run: str, name: str, value: float | None, state: str, reason: str) -> None:
        if value is not None:
            self._loop.outbox.metrics(run, {"value": value})
        self._loop.outbox.tags(
            run, {"loopline.trial_state": state.lower(), **({"loopline.reason": reason} if reason else {})}
        )
        self._loop.outbox.end_run(run, "FAILED" if state == "FAIL" else "FINISHED")
        result = reason.splitlines()[0] if reason else f"{value:.4f}{' (pruned)' if state == 'PRUNED' else ''}"
        self._loop.report.progress("search", self._ended, self._spec.trials, f"{name}: {result}")

    def _settle(self) -> StepResult:
        trials = optuna_study.trials_of(self._study)
        if self._undefined_folds:
            left_out = f"{self._undefined_folds} of {self._spec.folds} folds"
            self._loop.report.note(f"search: {self._metric} is undefined on {left_out}: the others count")
        best, chosen, bag_costs = self._choose(trials)
        importances = optuna_study.importances(self._study)
        write_json(self._folder / BEST_FILE, chosen["params"])
        write_json(self._folder / TRIALS_FILE, [trial.model_dump() for trial in trials])
        jobs = {net: self._model_of(trial) for net, trial in self._candidates(trials, 1).items()}
        keep_families(self._folder, jobs, self._space.names)
        self._log_pictures(trials, importances, best)
        counts = {state: sum(trial.state == state for trial in trials) for state in ("complete", "pruned", "failed")}
        result = {
            "study": self._study.study_name,
            "trials": len(trials),
            **counts,
            "best_trial": best.number,
            **chosen,
            "importances": importances,
            "costs": total([*(trial.costs for trial in trials), bag_costs]).model_dump(),
        }
        return StepResult([self._folder / BEST_FILE], result)

    def _choose(self, trials: list[Trial]) -> Choice:
        """Return the chosen model; see `ModelChoice`."""
        choice = ModelChoice(
            self._loop,
            Preparation.load(self._inputs["prepare"].folder),
            self._space,
            self._goal,
            lambda candidates: self._compared(candidates, self._spec.ensemble),
            lambda trial, fold: self._job(trial.params, self._folder_of(trial.params), fold, 0),
        )
        going_on = [trial for trial in trials if trial.params.get(NET) in self._first_round.families]
        num_candidates = MOST_MEMBERS[self._loop.spec.data.kind] if self._spec.ensemble else 1
        return choice.choose(trials, self._candidates(going_on, num_candidates), self._first_round)

    def _log_pictures(self, trials: list[Trial], importances: Mapping[str, float], best: Trial) -> None:
        log = [path for path, dimension in self._space.dimensions.items() if dimension.log]
        figures = search_figures(trials, best, importances, self._metric, self._direction, log)
        for name, content in figures.items():
            write_bytes(self._folder / "figures" / name, content)
            self._loop.outbox.artifact(LOOP_RUN, self._folder / "figures" / name, "search")
