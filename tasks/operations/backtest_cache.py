"""The backtest cache: stores trainings, predictions and verdicts under a key of their inputs.

<state>/backtest/
    models/KEY/         one training: prepared/ (known rows and their statistics), model.onnx, trained.json
    predictions/KEY.npz one model's predictions of one period, with the true values
    scores/KEY.npz      the metric of these predictions, plain and resampled
    verdicts/KEY.json   one challenger against one champion
    references/KEY.json the reference that a model's windows are compared with
    windows/KEY.json    the monitoring report of one window of predictions
All of it may be deleted at any time; it is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from models.backtest.ordered import TimeOrderedRows
from models.backtest.periods import Period, RowRange
from models.backtest.replay import TrainingOutcome, VerdictOutcome
from models.errors import DataError, TrainingError
from models.files import replacing_folder, sha256, storing, write_bytes, write_json, write_text
from models.pipeline.keys import Parts, code_parts, key_of
from models.pipeline.steps import BY_NAME
from models.project_spec.blocks import Spec
from models.training.job import WEIGHTS_FILE, InitialWeights, TrainingJob
from tasks.host.workspace import Project
from tasks.loop.ledger import StepCache
from tasks.operations.replay_progress import ReplayProgress
from tasks.ranks.rank_pool import RankPool, default_threads

if TYPE_CHECKING:
    from models.backtest.monitor import PastPredictions
    from models.backtest.score import Score
    from models.data.preparation import Preparation
    from models.judge.verdict import Estimate, Verdict
    from models.metrics.metrics import Array, Metric
    from models.monitoring.assess import AssessmentRules
    from models.monitoring.reference import Reference
    from models.monitoring.report import WindowReport
    from models.triggers.signal import Signal

FOLDER = "backtest"
TRAINED_FILE = "trained.json"
MODEL_FILE = "model.onnx"
PREPARED = "prepared"
# The live steps with the code that decides their results, without the code that only runs them.
_MADE_BY = tuple(
    replace(BY_NAME[name], code=code)
    for name, code in (
        ("prepare", ("models.data.prepare",)),
        ("train", ("models.data.encode", "models.training.rank")),
        ("export", ("models.export.export",)),
    )
)
_JUDGED_BY = replace(BY_NAME["judge"], code=("models.backtest.contest",))
_WATCHED_BY = replace(_JUDGED_BY, reads=("monitor", "goal", "data.expectations"), code=("models.backtest.monitor",))
_SCORED_BY = replace(_JUDGED_BY, reads=("goal.metric", "goal.direction"), code=("models.backtest.score",))
_PREDICTED_BY = ("models.backtest.period_rows", "models.inference.predict")
_REFERRED_BY = ("models.monitoring.build",)
_KINDS = ("models", "predictions", "references", "scores", "verdicts", "windows")
_NAME_CHARACTERS = 24


@dataclass
class TrainingCounts:
    """Numbers of new trainings and of trainings from the cache."""

    trained: int = 0
    reused: int = 0


class ReplayStart(NamedTuple):
    """The inputs of a training: known rows, the number of newest training rows to use, and the model to start from."""

    rows: RowRange
    newest: int | None
    start: str | None


class CachedPredictions(NamedTuple):
    """Predictions of some rows with their true values and row numbers, in time order."""

    key: str
    target: Array
    prediction: Array
    row: Array


@dataclass(frozen=True)
class CachedWindows:
    """Windows of one model, oldest first, and the last window's key, which also covers the earlier windows."""

    key: str = ""
    reports: list[WindowReport] = field(default_factory=list)

    def after(self, key: str, window: WindowReport) -> CachedWindows:
        """Return a copy with one more window."""
        return CachedWindows(key, [*self.reports, window])


class BacktestCache:
    """The backend of a replay, with caching; see `models.backtest.replay.ReplayBackend`.

    Args:
        project: The project whose past is replayed.
        spec: The spec with the settings for all trainings.
        past: The raw rows in time order.
        pool: The rank pool that trains and exports.
        progress: Receives the progress.
    """

    def __init__(
        self, project: Project, spec: Spec, past: TimeOrderedRows, pool: RankPool, progress: ReplayProgress
    ) -> None:
        self._project, self._spec, self._past, self._pool, self._progress = project, spec, past, pool, progress
        self._folder = project.state(spec.name) / FOLDER
        self._ledger = StepCache(project, spec)
        self._made_by: Parts = {}
        for step in _MADE_BY:
            self._made_by |= self._ledger.own_parts(step)
        self._judged_by = self._ledger.own_parts(_JUDGED_BY)
        self._scored_by = self._ledger.own_parts(_SCORED_BY)
        self._predicted_by = code_parts(_PREDICTED_BY)
        self._watched_by = self._ledger.own_parts(_WATCHED_BY)
        self._referred_by = code_parts(_REFERRED_BY)
        self._loaded: dict[str, Preparation] = {}
        self._watches: dict[str, AssessmentRules] = {}
        self._promised: dict[str, Estimate] = {}
        self._periods: list[RowRange] = []
        self.counts = TrainingCounts()
        self.notes: list[str] = []
        self.used: set[Path] = set()

    @property
    def base(self) -> Path:
        """The spec's folder, to which references are relative."""
        return self._project.folder

    def train(self, rows: RowRange, newest: int | None, start: str | None) -> TrainingOutcome:
        """Return a model from these rows: from the cache, from a training continued after a kill, or newly trained."""
        replay_start = ReplayStart(rows, newest or self._spec.data.newest, start)
        parts = self._parts(replay_start)
        key = key_of(parts)
        folder = self._model_folder(key)
        done = self._done(folder)
        if done is None:
            self._progress.training(rows)
            began = time.perf_counter()
            try:
                done = self._make(folder, key, replay_start)
            except (DataError, TrainingError) as error:
                return TrainingOutcome("", 0.0, str(error).splitlines()[0])
            self.counts.trained += 1
            self._progress.trained(rows, time.perf_counter() - began)
        else:
            self.counts.reused += 1
        return TrainingOutcome(key, float(done["device_seconds"]))

    def predict(self, model: str, period: Period) -> None:
        """Predict a period, unless the cache holds its predictions."""
        self._progress.period(period)
        rows = RowRange(period.first, period.stop)
        self._periods = sorted({*self._periods, rows}, key=lambda each: each.first)
        self.predictions(model, rows)

    def judge(self, challenger: str, champion: str | None, rows: RowRange) -> VerdictOutcome:
        """Return the verdict by the spec's rules on the challenger's held-out rows."""
        del rows  # the challenger's folder holds them
        verdict = self.verdict(challenger, champion)
        self._promised[challenger] = verdict.challenger
        return VerdictOutcome(verdict.promoted, verdict.reasons)

    def monitor(self, model: str, since: Period, now: Period, labelled: int) -> list[Signal]:
        """Return the signals that live monitoring would send for all of the model's predictions and known labels."""
        from models.backtest.monitor import PastPredictions, signals_of

        periods = [rows for rows in self._periods if since.first <= rows.first < now.stop]
        parts = [self.predictions(model, rows) for rows in periods]
        served = PastPredictions.joined([(each.row, each.target, each.prediction) for each in parts])
        watched, windows = self._watched(model), CachedWindows()
        for part in served.windows(self._spec.monitor.window):
            key = self._key_of_window(model, served.row[part], labelled, windows.key)
            windows = windows.after(key, self._window(key, model, served, part, labelled, windows.reports))
        return signals_of(self._spec.name, now.end, windows.reports, watched)

    def _key_of_window(self, model: str, row: Array, labelled: int, before: str) -> str:
        parts = {
            **self._watched_by,
            "model": model,
            "rows": self._past.digest(RowRange(int(row[0]), int(row[-1]) + 1)),
            "labelled": int((row < labelled).sum()),
            "promised": self._promised[model].model_dump(),
            "before": before,
        }
        return key_of(parts)

    def _window(
        self, key: str, model: str, served: PastPredictions, part: slice, labelled: int, before: list[WindowReport]
    ) -> WindowReport:
        from models.backtest.monitor import assess_window, inputs_of
        from models.monitoring.report import WindowReport

        path = self._use(self._folder / "windows" / f"{key[:_NAME_CHARACTERS]}.json")
        with contextlib.suppress(OSError, ValueError):
            return WindowReport.model_validate_json(path.read_text())
        rows, preparation = served.row[part], self.preparation(model)
        stop = int(rows[-1]) + 1
        inputs = inputs_of(self._past.table, rows, self._spec.data, preparation, stop, self.base)
        times = self._past.clock.times
        window = assess_window(served, part, labelled, self._watched(model), inputs, times, before)
        write_text(path, window.model_dump_json() + "\n")
        return window

    def _watched(self, model: str) -> AssessmentRules:
        """Return the rules that assess a model's windows: its reference, and the metric of its own verdict."""
        from models.backtest.contest import metric_of
        from models.monitoring.assess import AssessmentRules
        from models.monitoring.contract import bounds_of

        if model not in self._watches:
            spec, reference = self._spec, self._reference(model)
            self._watches[model] = AssessmentRules(
                version=model[:8],
                monitor=spec.monitor,
                metric=metric_of(spec, self.preparation(model), self.base),
                reference=reference,
                promoted=self._promised[model],
                bounds=bounds_of(reference.columns, spec.data, spec.monitor.seasonal),
            )
        return self._watches[model]

    def _reference(self, model: str) -> Reference:
        """Return a model's monitoring reference, built by today's monitoring code."""
        from models.monitoring.build import build
        from models.monitoring.reference import Reference

        path = self._use(
            self._folder / "references" / f"{key_of({**self._referred_by, 'model': model})[:_NAME_CHARACTERS]}.json"
        )
        with contextlib.suppress(OSError, ValueError):
            return Reference.model_validate_json(path.read_text())
        folder = self._model_folder(model)
        made = build(folder / PREPARED, folder / MODEL_FILE, self.preparation(model))
        write_text(path, made.model_dump_json() + "\n")
        return made

    def verdict(self, challenger: str, champion: str | None) -> Verdict:
        """Return the verdict on a challenger against a champion, or against goal and baseline alone."""
        from models.backtest.contest import contest
        from models.judge.verdict import Verdict

        key = key_of({**self._judged_by, "input:challenger": challenger, "input:champion": champion or ""})
        path = self._use(self._folder / "verdicts" / f"{key[:_NAME_CHARACTERS]}.json")
        with contextlib.suppress(OSError, ValueError):
            return Verdict.model_validate_json(path.read_text())
        folders = self._model_folder(challenger), self._model_folder(champion) if champion else None
        verdict = contest(*folders, self._spec, self._project.folder)
        write_text(path, verdict.model_dump_json(indent=1) + "\n")
        return verdict

    def predictions(self, model: str, rows: RowRange) -> CachedPredictions:
        """Return a model's predictions of some rows and the true values, in time order."""
        key = key_of({**self._predicted_by, "model": model, "rows": self._digest_of_period(model, rows)})
        path = self._use(self._folder / "predictions" / f"{key[:_NAME_CHARACTERS]}.npz")
        arrays = _read_arrays(path)
        if arrays is None:
            arrays = self._predict(model, rows)
            _write_arrays(path, arrays)
        return CachedPredictions(key, arrays["target"], arrays["prediction"], arrays["row"])

    def score(self, model: str, period: Period, metric: Metric) -> Score:
        """Return the goal's metric of a model in a period."""
        from models.backtest.score import RESAMPLES, Score, score

        predicted = self.predictions(model, RowRange(period.first, period.stop))
        seed = self._spec.train.seed
        parts = {**self._scored_by, "predictions": predicted.key, "resamples": RESAMPLES, "seed": seed}
        path = self._use(self._folder / "scores" / f"{key_of(parts)[:_NAME_CHARACTERS]}.npz")
        arrays = _read_arrays(path)
        if arrays is None:
            made = score(metric, predicted.target, predicted.prediction, self.preparation(model), seed)
            arrays = {"value": np.array(made.value), "drawn": made.drawn}
            _write_arrays(path, arrays)
        return Score(float(arrays["value"]), arrays["drawn"], len(predicted.target))

    def preparation(self, model: str) -> Preparation:
        """Return the preparation of a trained model."""
        from models.data.preparation import Preparation

        if model not in self._loaded:
            self._loaded[model] = Preparation.load(self._model_folder(model))
        return self._loaded[model]

    def prune(self, older_than_s: float) -> None:
        """Remove entries that this backtest did not use and that nobody made or used for `older_than_s`."""
        for path in [path for kind in _KINDS for path in (self._folder / kind).glob("*")]:
            with contextlib.suppress(OSError):
                if path not in self.used and time.time() - path.stat().st_mtime > older_than_s:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def save(self) -> None:
        """Store the code fingerprints for the next run."""
        self._ledger.save()

    def _use(self, path: Path) -> Path:
        self.used.add(path)
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def _model_folder(self, key: str) -> Path:
        return self._folder / "models" / key[:_NAME_CHARACTERS]

    def _parts(self, start: ReplayStart) -> Parts:
        inputs = {"input:rows": self._past.digest(start.rows), "input:start": start.start or ""}
        return {**self._made_by, "spec:data.newest": start.newest, **inputs}

    def _digest_of_period(self, model: str, rows: RowRange) -> str:
        """Return the digest of a period's rows; it covers all earlier rows if features or windows may read them."""
        reaches_back = self._spec.data.features.make or self.preparation(model).window
        return self._past.digest(RowRange(0, rows.stop) if reaches_back else rows) + (
            f" from {rows.first}" if reaches_back else ""
        )

    def _done(self, folder: Path) -> dict[str, Any] | None:
        """Return the content of `trained.json`, or None unless the model file has the hash named there."""
        try:
            document: dict[str, Any] = json.loads((folder / TRAINED_FILE).read_text())
            whole = sha256(folder / MODEL_FILE) == document["model_sha256"]
        except (OSError, ValueError, KeyError):
            return None
        self._use(folder)
        return document if whole else None

    def _make(self, folder: Path, key: str, start: ReplayStart) -> dict[str, Any]:
        """Prepare, train and export, continuing after a kill; `trained.json` is written last."""
        from models.backtest.period_rows import prepare_known
        from models.data.encode import write_tensors
        from models.data.preparation import PREPARATION_FILE

        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        prepared, tensors = folder / PREPARED, folder / "tensors"
        if not (prepared / PREPARATION_FILE).exists():
            data = self._spec.data.model_copy(update={"newest": start.newest})
            spec = self._spec.model_copy(update={"data": data})
            prepare_known(self._past.table, start.rows, spec, self._project.folder, prepared)
        if not tensors.exists():
            with replacing_folder(tensors) as temporary:
                write_tensors(prepared, temporary)
        job = self._job(folder, prepared, tensors, start.start)
        result = self._pool.run(job)
        made = self._pool.call(
            "models.export.export:export",
            job=json.loads(job.model_dump_json()),
            out=str(folder),
            metadata={"loopline.project": self._spec.name},
        )
        if (weights := job.folder / WEIGHTS_FILE).exists():
            shutil.copyfile(weights, folder / WEIGHTS_FILE)
        done = {
            "key": key,
            "rows": start.rows.stop,
            "newest": start.newest,
            "device_seconds": result.costs.device_seconds if result.costs else 0.0,
            "validation": result.value,
            "model_sha256": made["sha256"],
        }
        write_json(folder / TRAINED_FILE, done)
        for leftover in (tensors, job.folder):
            shutil.rmtree(leftover, ignore_errors=True)
        return done

    def _job(self, folder: Path, prepared: Path, tensors: Path, start: str | None) -> TrainingJob:
        from models.backtest.contest import metric_of
        from models.data.preparation import Preparation

        spec, preparation = self._spec, Preparation.load(prepared)
        metric = metric_of(spec, preparation, self._project.folder)
        return TrainingJob(
            folder=folder / "job",
            prepared=prepared,
            tensors={path.stem: path for path in sorted(tensors.glob("*.safetensors"))},
            project=self._project.folder,
            model=spec.model,
            train=spec.train,
            metric=spec.goal.metric or metric.name,
            direction=metric.direction,
            threads=spec.train.threads or default_threads(spec.train.ranks),
            start=self._origin(start) if start else None,
        )

    def _origin(self, model: str) -> InitialWeights | None:
        """Return the weights of an earlier model of this replay, or None if it is not a net."""
        from models.training.checkpoints.weights import weights_sha256

        weights = self._model_folder(model) / WEIGHTS_FILE
        if not weights.exists():
            return None
        return InitialWeights(weights=weights, sha256=weights_sha256(weights), label=f"the champion {model[:8]}")

    def _predict(self, model: str, rows: RowRange) -> dict[str, Any]:
        from models.backtest.period_rows import rows_predicted, write_period
        from models.data.feeds import feeds, targets
        from models.inference.predict import predict

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


def _read_arrays(path: Path) -> dict[str, Any] | None:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_bytes(path, buffer.getvalue())
