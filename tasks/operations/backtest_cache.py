"""The backtest cache: stores trainings, predictions and verdicts under a key of their inputs.

<state>/backtest/
    models/KEY/         one training: prepared/ (known rows and their statistics), model.onnx, trained.json
    predictions/KEY.npz one model's predictions of one period, with the true values
    scores/KEY.npz      the metric of these predictions, plain and resampled
    verdicts/KEY.json   one challenger against one champion
    references/KEY.json the reference that a model's windows are compared with
    windows/KEY.json    the monitoring report of one window of predictions
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from models.backtest.contest import RESAMPLES, Score, contest, score
from models.backtest.monitor import PastPredictions, assess_window, inputs_of, signals_of
from models.backtest.period_rows import prepare_known, rows_predicted, write_period
from models.backtest.periods import Period, RowRange, TimeOrderedRows
from models.backtest.replay import TrainingOutcome, VerdictOutcome
from models.data.encode import write_tensors
from models.data.feeds import feeds, targets
from models.data.preparation import PREPARATION_FILE, Preparation
from models.data.weights import raw_weights
from models.errors import DataError, TrainingError
from models.files import read_json, replacing_folder, sha256, storing, write_json
from models.inference.portable import MODEL_FILE
from models.inference.predict import predict
from models.judge.verdict import Verdict
from models.metrics.metrics import metric_of
from models.monitoring.assess import AssessmentRules
from models.monitoring.build import build
from models.monitoring.contract import bounds_of
from models.monitoring.reference import Reference
from models.monitoring.report import WindowReport
from models.nets.catalogue import net_name
from models.pipeline.keys import Parts, key_of
from models.pipeline.steps import BY_NAME, ENCODING_CODE, EXPORT_CODE, INPUT_ROWS
from models.project_spec.blocks import Spec
from models.training.checkpoints.weights import weights_sha256
from models.training.ensemble import fit_members, members_of
from models.training.job import WEIGHTS_FILE, InitialWeights, TrainingJob, TrainingResult, begun
from tasks.host.workspace import Project
from tasks.loop.jobs import FOLD_BY, run_here, validation_value
from tasks.loop.loop import Reporter
from tasks.loop.step_cache import StepCache
from tasks.ranks.rank_pool import RankPool, default_threads
from tasks.state.keyed_cache import KeyedCache, arrays, document

if TYPE_CHECKING:
    from models.judge.verdict import Estimate
    from models.metrics.metrics import Metric
    from models.triggers.signal import Signal

FOLDER = "backtest"
TRAINED_FILE = "trained.json"
PREPARED = "prepared"
# The code that decides each kind of entry, without the code that only runs it, and the parts of the spec that it reads.
_MADE_BY = {
    "prepare": ("models.data.prepare", INPUT_ROWS),
    "train": (*ENCODING_CODE, "models.training.rank", "models.export.validation_scores"),
    "export": EXPORT_CODE,
}
_DECIDED_BY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "predictions": (("models.backtest.period_rows", "models.inference.predict"), ()),
    "references": (("models.monitoring.build",), ()),
    "scores": (("models.backtest.contest",), ("goal.metric", "goal.direction")),
    "verdicts": (("models.backtest.contest",), BY_NAME["judge"].reads),
    "windows": (
        ("models.backtest.monitor",),
        ("monitor", "goal", "data.expectations", "data.show_rows", "serve.log.redact"),
    ),
}


class ReplayProgress:
    """Reports a replay's progress: periods done over all policies, and about how long trainings will still take.

    Args:
        report: The reporter that shows it.
        moments: Known rows at each moment at which a policy may train, without duplicates.
        total: Number of periods of all policies.
    """

    def __init__(self, report: Reporter, moments: Sequence[int], total: int) -> None:
        self._report, self._owed, self._total = report, set(moments), total
        self._count = 0
        self._s_a_row: float | None = None
        self.policy = ""

    def period(self, period: Period) -> None:
        """Count a replayed period and report it."""
        self._count += 1
        self._show(period.name)

    def training(self, rows: RowRange) -> None:
        """Report that a training begins."""
        self._show(f"training on {rows.stop - rows.first:,} rows")

    def trained(self, rows: RowRange, seconds: float) -> None:
        """Note a finished training and its duration in seconds."""
        self._owed.discard(rows.stop)
        self._s_a_row = seconds / (rows.stop - rows.first)  # the latest: the first also waited for torch's import

    def _show(self, text: str) -> None:
        left_s = sum(self._owed) * (self._s_a_row or 0.0)
        eta = f", at most about {left_s:.0f} s of training left" if left_s else ""
        self._report.progress("backtest", self._count, self._total, f"{self.policy} {text}{eta}")


class Promise(NamedTuple):
    """The metric of a model's verdict, that of each of several horizons, and how many dependent examples gave them."""

    metric: Estimate
    horizons: dict[str, Estimate]
    num_dependent: int | None

    def as_inputs(self) -> dict[str, Any]:
        """Return it as an input of what is computed from it."""
        settings = self.metric.model_dump() | {"num_dependent": self.num_dependent}
        horizons = {name: horizon.model_dump() for name, horizon in self.horizons.items()}
        return {**settings, "horizons": horizons} if horizons else settings


class BacktestCache:
    """The backend of a replay, with caching; see `models.backtest.replay.ReplayBackend`.

    Args:
        project: The project whose past is replayed.
        spec: The spec with the settings for all trainings.
        past: The raw rows in time order.
        pool: The rank pool that trains and exports.
        progress: Receives the progress.

    Attributes:
        trained: Number of new trainings.
        reused: Number of trainings from the cache.
        notes: What a reader of the result must know.
    """

    def __init__(
        self, project: Project, spec: Spec, past: TimeOrderedRows, pool: RankPool, progress: ReplayProgress
    ) -> None:
        self._project, self._spec, self._past, self._pool, self._progress = project, spec, past, pool, progress
        steps = StepCache(project, spec)
        made_by = [steps.own_parts(replace(BY_NAME[name], code=code)) for name, code in _MADE_BY.items()]
        made_by += [steps.read_since(name) for name in _MADE_BY]
        self._parts: dict[str, Parts] = {"models": {name: part for parts in made_by for name, part in parts.items()}}
        for kind, (code, reads) in _DECIDED_BY.items():
            metric = ("goal.metric",) if reads else ()
            parts = steps.own_parts(replace(BY_NAME["judge"], reads=reads, code=code, references=metric))
            self._parts[kind] = parts | (steps.read_since("judge") if metric else {})
        self._entries = {kind: KeyedCache(project.state(spec.name) / FOLDER / kind) for kind in self._parts}
        self._loaded: dict[str, Preparation] = {}
        self._watches: dict[str, AssessmentRules] = {}
        self._promised: dict[str, Promise] = {}
        self._periods: list[RowRange] = []
        self.trained, self.reused = 0, 0
        self.notes: list[str] = []

    def train(self, rows: RowRange, newest: int | None, start: str | None) -> TrainingOutcome:
        """Return a model from these rows: from the cache, from a training continued after a kill, or newly trained."""
        newest = newest or self._spec.data.newest
        inputs = {"input:rows": self._past.digest(rows), "input:start": start or ""}
        key = self._key("models", {"spec:data.newest": newest, **inputs})
        trained = self._done(key)
        if trained is None:
            self._progress.training(rows)
            began = time.perf_counter()
            try:
                trained = self._make(key, rows, newest, start)
            except (DataError, TrainingError) as error:
                return TrainingOutcome("", 0.0, str(error).splitlines()[0])
            self.trained += 1
            self._progress.trained(rows, time.perf_counter() - began)
        else:
            self.reused += 1
        return TrainingOutcome(key, float(trained["device_seconds"]))

    def predict(self, model: str, period: Period) -> None:
        """Predict a period, unless the cache holds its predictions."""
        self._progress.period(period)
        rows = RowRange(period.first, period.stop)
        self._periods = sorted({*self._periods, rows}, key=lambda block: block.first)
        self.predictions(model, rows)

    def judge(self, challenger: str, champion: str | None, best: str | None = None) -> VerdictOutcome:
        """Return the verdict by the spec's rules on the challenger's held-out rows."""
        verdict = self.verdict(challenger, champion, best)
        self._promised[challenger] = Promise(
            verdict.promise(rows_alike=self._spec.monitor.weights == "importance"),
            verdict.horizons,
            verdict.num_dependent,
        )
        return VerdictOutcome(verdict.promoted, verdict.reasons, verdict.is_best)

    def monitor(self, model: str, since: Period, now: Period, labelled: int) -> list[Signal]:
        """Return the signals that live monitoring would send for all of the model's predictions and known labels."""
        periods = [rows for rows in self._periods if since.first <= rows.first < now.stop]
        served = PastPredictions.joined([self.predictions(model, rows) for rows in periods])
        watched, reports, key = self._watched(model), list[WindowReport](), ""
        for part in served.windows(self._spec.monitor.window):
            row = served.row[part]
            inputs = {
                "model": model,
                "rows": self._past.digest(RowRange(int(row[0]), int(row[-1]) + 1)),
                "labelled": int((row < labelled).sum()),
                "promised": self._promised[model].as_inputs(),
                "before": key,  # which covers the earlier windows
            }
            key = self._key("windows", inputs)
            make = functools.partial(self._window, model, served, part, labelled, reports)
            reports = [*reports, self._entries["windows"].get(key, document(WindowReport), make)]
        return signals_of(self._spec.name, now.end, reports, watched)

    def _window(
        self, model: str, served: PastPredictions, part: slice, labelled: int, before: list[WindowReport]
    ) -> WindowReport:
        rows, preparation = served.row[part], self.preparation(model)
        stop = int(rows[-1]) + 1
        inputs = inputs_of(
            self._past.table, rows, self._spec.data, preparation.columns, preparation.kind, stop, self._project.folder
        )
        return assess_window(served, part, labelled, self._watched(model), inputs, self._past.clock.times, before)

    def _watched(self, model: str) -> AssessmentRules:
        """Return the rules that assess a model's windows: its reference, and the metric of its own verdict."""
        if model not in self._watches:
            spec, preparation = self._spec, self.preparation(model)
            reference = self._reference(model).as_monitored(spec.monitor, spec.serve.log.redact)
            metric = metric_of(spec.goal, preparation, self._project.folder)
            self._watches[model] = AssessmentRules(
                version=model[:8],
                monitor=spec.monitor,
                metric=metric.at(preparation.class_head.decision),
                reference=reference,
                promoted=self._promised[model].metric,
                promoted_horizons=self._promised[model].horizons,
                num_dependent=self._promised[model].num_dependent,
                outputs=preparation.outputs,
                promoted_confidence=spec.judge.confidence,
                bounds=bounds_of(reference.columns, spec.data, spec.monitor.seasonal),
                shows_values=spec.data.show_rows,
            )
        return self._watches[model]

    def _reference(self, model: str) -> Reference:
        """Return a model's monitoring reference, built by today's monitoring code."""
        folder, key = self._model_folder(model), self._key("references", {"model": model})
        make = functools.partial(build, folder / PREPARED, folder / MODEL_FILE, self.preparation(model))
        return self._entries["references"].get(key, document(Reference), make)

    def verdict(self, challenger: str, champion: str | None, best: str | None = None) -> Verdict:
        """Return the verdict on a challenger against a champion, or against goal and baseline alone.

        `best` is the best champion so far.
        """
        best = None if best == champion else best
        rivals = {"input:champion": champion or "", **({"input:best champion so far": best} if best else {})}
        key = self._key("verdicts", {"input:challenger": challenger, **rivals})
        folders = self._model_folder(challenger), self._model_folder(champion) if champion else None
        before = self._model_folder(best) if best else None
        make = functools.partial(contest, *folders, self._spec, self._project.folder, before)
        return self._entries["verdicts"].get(key, document(Verdict), make)

    def predictions(self, model: str, rows: RowRange) -> PastPredictions:
        """Return a model's predictions of some rows and the true values, in time order."""
        make = functools.partial(self._predict, model, rows)
        return PastPredictions(**self._entries["predictions"].get(self._prediction_key(model, rows), arrays(), make))

    def score(self, model: str, period: Period, metric: Metric) -> Score:
        """Return the goal's metric of a model in a period."""
        rows, seed = RowRange(period.first, period.stop), self._spec.train.seed
        name = self._spec.data.weight
        inputs: Parts = {"predictions": self._prediction_key(model, rows), "resamples": RESAMPLES, "seed": seed}
        inputs |= {} if name is None else {"weight": name}

        def make() -> dict[str, Any]:

            predicted = self.predictions(model, rows)
            weights = None if name is None else raw_weights(self._past.table.column(name), name)[predicted.row]
            scored = score(metric, predicted.target, predicted.prediction, self.preparation(model), seed, weights)
            return {"value": np.array(scored.value), "drawn": scored.drawn, "num_rows": np.array(scored.num_rows)}

        stored = self._entries["scores"].get(self._key("scores", inputs), arrays(), make)
        return Score(float(stored["value"]), stored["drawn"], int(stored["num_rows"]))

    def preparation(self, model: str) -> Preparation:
        """Return the preparation of a trained model."""
        if model not in self._loaded:
            self._loaded[model] = Preparation.load(self._model_folder(model))
        return self._loaded[model]

    def prune(self, older_than_s: float) -> None:
        """Remove entries that this backtest did not use and that nobody made or used for `older_than_s`."""
        for entries in self._entries.values():
            entries.prune(older_than_s)

    def _key(self, kind: str, inputs: Parts) -> str:
        return key_of({**self._parts[kind], **inputs})[:24]

    def _model_folder(self, key: str) -> Path:
        return self._entries["models"].path(key)

    def _prediction_key(self, model: str, rows: RowRange) -> str:
        """Return the key of predictions; it covers all earlier rows if features or windows may read them."""
        reaches_back = self._spec.data.features.make or self.preparation(model).window
        digest = self._past.digest(RowRange(0, rows.stop) if reaches_back else rows)
        return self._key("predictions", {"model": model, "rows": digest, "first": rows.first if reaches_back else None})

    def _done(self, key: str) -> dict[str, Any] | None:
        """Return the content of `trained.json`, or None unless the model file has the hash named there."""
        folder = self._model_folder(key)
        document = read_json(folder / TRAINED_FILE)
        try:
            return document if document and sha256(folder / MODEL_FILE) == document["model_sha256"] else None
        except OSError:
            return None

    def _make(self, key: str, rows: RowRange, newest: int | None, start: str | None) -> dict[str, Any]:
        """Prepare, train and export, continuing after a kill; `trained.json` is written last."""
        folder = self._model_folder(key)
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        prepared, tensors = folder / PREPARED, folder / "tensors"
        if not (prepared / PREPARATION_FILE).exists():
            data = self._spec.data.model_copy(update={"newest": newest})
            spec = self._spec.model_copy(update={"data": data})
            prepare_known(self._past.table, rows, spec, self._project.folder, prepared)
        if not tensors.exists():
            with replacing_folder(tensors) as temporary:
                write_tensors(prepared, temporary)
        job = self._job(folder, prepared, tensors, start)
        result = self._trained(job)
        exported = self._pool.call(
            "models.export.export:export",
            job=job.as_json(),
            out=str(folder),
            metadata={"loopline.project": self._spec.name},
        )
        if (weights := job.folder / WEIGHTS_FILE).exists():
            shutil.copyfile(weights, folder / WEIGHTS_FILE)
        trained = {
            "key": key,
            "rows": rows.stop,
            "newest": newest,
            "device_seconds": result.costs.device_seconds if result.costs else 0.0,
            "validation": result.value,
            "model_sha256": exported["sha256"],
        }
        write_json(folder / TRAINED_FILE, trained)
        for leftover in (tensors, job.folder):
            shutil.rmtree(leftover, ignore_errors=True)
        return trained

    def _job(self, folder: Path, prepared: Path, tensors: Path, start: str | None) -> TrainingJob:

        spec, preparation = self._spec, Preparation.load(prepared)
        metric = metric_of(spec.goal, preparation, self._project.folder)
        job = TrainingJob(
            folder=folder / "job",
            prepared=prepared,
            tensors={path.stem: path for path in sorted(tensors.glob("*.safetensors"))},
            project=self._project.folder,
            model=spec.model.model_copy(update={"net": net_name(spec.model.net, preparation.kind)}),
            train=spec.train,
            metric=spec.goal.reference or metric.name,
            direction=metric.direction,
            threads=spec.train.threads or default_threads(spec.train.ranks),
            fold_by=FOLD_BY.get(spec.data.split.by, "random"),
        )
        return begun(job, self._origin(start) if start else None)

    def _trained(self, job: TrainingJob) -> TrainingResult:
        if not members_of(job):
            return run_here(self._pool, job)
        return fit_members(
            job, lambda _, member: run_here(self._pool, member), functools.partial(validation_value, self._pool)
        )

    def _origin(self, model: str) -> InitialWeights | None:
        """Return the weights of an earlier model of this replay, or None if it is not a net."""
        weights = self._model_folder(model) / WEIGHTS_FILE
        if not weights.exists():
            return None
        return InitialWeights(weights=weights, sha256=weights_sha256(weights), label=f"the champion {model[:8]}")

    def _predict(self, model: str, rows: RowRange) -> dict[str, Any]:
        preparation: Preparation = self.preparation(model)
        with tempfile.TemporaryDirectory(dir=self._project.workspace.cache) as place:
            folder = Path(place) / "period"
            left_out = write_period(self._past.table, rows, self._spec.data, self._project.folder, preparation, folder)
            if left_out:
                self.notes.append(f"{left_out} rows of rows {rows.first} to {rows.stop} have a class that is new")
            graph = self._model_folder(model) / MODEL_FILE
            return {
                "prediction": predict(graph, feeds(folder, "test", preparation), preparation),
                "target": targets(folder, "test"),
                "row": rows_predicted(folder),
            }
