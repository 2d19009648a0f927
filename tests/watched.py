"""A project whose champion is the made-up model of the unit tests: its log, its labels, its looks."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from models.files import sha256, write_json
from models.inference.input_schema import InputRows
from models.inference.loaded_model import Prediction
from models.judge.verdict import Estimate, Verdict
from models.project_spec.blocks import Judge
from models.project_spec.reader import read_spec
from models.serving.records import PredictionRecorder, label_record
from models.serving.registry import RegisteredVersion
from tasks.host.workspace import Project
from tasks.mlflow import delivery, registry_reader
from tasks.operations import monitor as monitor
from tasks.state.predictions import label_store, prediction_log
from tasks.state.segments import SegmentWriter, segments_folder
from tests.unit.models.monitoring import conftest as made

SPEC = "goal: {metric: roc_auc}\nmonitor: {window: 500, min_labels: 100}\n"


class World:
    """A project whose champion is the made-up model, its log and its labels."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = project
        self.spec = read_spec(project.spec_path, (), project.shown_spec)
        self.state = project.state(self.spec.name)
        self.told: dict[int, dict[str, float]] = {}
        self.champion = "1"
        monkeypatch.setattr(registry_reader, "named", self._named)
        monkeypatch.setattr(delivery, "log_version_metrics", self._log)
        monkeypatch.setattr(monitor, "_write_page", self._keep_page)  # pictures take longer than all the rest
        self.cached = project.workspace.cache / "models" / self.spec.name
        if not self.cached.exists():
            self.register("1")

    def _named(self, root, model, name="champion"):
        return RegisteredVersion(number=self.champion, tags={}) if self.champion and name == "champion" else None

    def _log(self, model, version, batches) -> None:
        self.told |= {step: metrics for step, (_, metrics) in batches.items()}

    def _keep_page(self, path, findings, spec) -> None:
        self.page = path, findings, spec

    def register(self, version: str, with_reference: bool = True) -> None:
        folder = self.cached / version
        folder.mkdir(parents=True)
        made.preparation().save(folder)
        if with_reference:
            made.reference().save(folder)
        promoted = Estimate(value=0.82, low=0.81, high=0.83)
        verdict = Verdict(
            task="binary",
            metric="roc_auc",
            direction="maximize",
            rules=Judge(),
            num_samples=5000,
            challenger=promoted,
        )
        (folder / "verdict.json").write_text(verdict.model_dump_json())
        write_json(self.cached / f"{version}.json", {path.name: sha256(path) for path in folder.iterdir()})

    def predict(self, num: int, begin: float = 0.0, seed: int = 7, version: str = "1", **told) -> pa.Table:
        table = made.rows(num, seed=seed, **told)
        ids = [f"{seed}-{place}" for place in range(num)]
        at = [datetime.fromtimestamp(begin + place, UTC) for place in range(num)]
        logged = made.logged(table).append_column("id", [ids]).append_column("version", [[version] * num])
        prediction_log(self.state).append(logged.append_column("at", [pa.array(at, pa.timestamp("us", tz="UTC"))]))
        return table

    def serve(self, table: pa.Table, seed: int = 7, redacted: tuple[str, ...] = ()) -> None:
        """What a server writes of the rows, in requests of one, a second apart; nobody has moved it yet."""
        score = made.logged(table).column("score").to_numpy()
        writer, recorder = SegmentWriter(segments_folder(self.state)), PredictionRecorder(made.preparation(), redacted)
        for place, row in enumerate(table.to_pylist()):
            feed = {
                name: np.array([np.nan if value is None else value], object if isinstance(value, str) else None)
                for name, value in row.items()
            }
            chances = np.array([[1 - score[place], score[place]]])
            answer = Prediction(self.spec.name, "1", {"probabilities": chances})
            ids, at = [f"{seed}-{place}"], place * 1_000_000
            writer.write(recorder.record(ids, at, InputRows(feed), answer))
        writer.close()

    def turned_out(self, table: pa.Table, seed: int = 7) -> None:
        """What a server writes of labels."""
        writer = SegmentWriter(segments_folder(self.state, "labels"))
        for place, each in enumerate(made.truth(table, seed)):
            writer.write(label_record([(f"{seed}-{place}", "true" if each else "false")], place, "Ada"))
        writer.close()

    def label(
        self, table: pa.Table, seed: int = 7, right: bool = True, at: float = 0.0, most: int | None = None
    ) -> None:
        truth = ["true" if each else "false" for each in made.truth(table, seed, right)][:most]
        ids = [f"{seed}-{place}" for place in range(len(truth))]
        when = [datetime.fromtimestamp(at, UTC)] * len(truth)
        label_store(self.state).append(pa.table({"id": ids, "label": truth, "at": when}))

    def look(self, now: float = 100.0):
        return monitor.look(self.project, self.spec, now)

    def windows(self, version: str = "1"):
        return [window for window in self.look().windows if window.version == version]
