"""Rule: a row of weight 0 counts as absent in all that a person sees: each stage gives the same with and without it.

Half of the rows weigh nothing: their targets say the opposite, and of the test rows one class is theirs alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from models.data.feeds import feed_at, targets
from models.data.preparation import Preparation
from models.data.weights import weights_of
from models.export.background import write_background
from models.export.bench import BenchmarkRows
from models.identity.hashing import hash_values, unit_interval
from models.inference.portable import MODEL_FILE
from models.inference.predict import predict
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.worst_examples import worst_examples
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Judge
from models.report import verdict_figures
from tasks.steps.importances import importances
from tasks.steps.judge import class_rows, never_predicted
from tests.goal_jobs import answers, fitted, prepared_table

NUM = 1200


def columns_of(*, is_whole: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.integers(-40, 41, (NUM, 2)) / 10
    weighs = np.arange(NUM) % 2 == 0
    is_high = (x[:, 0] + rng.normal(size=NUM) / 4 > 0) == weighs
    label = np.where(is_high, "yes", "no").astype(object)
    is_train = unit_interval(hash_values(pa.chunked_array([np.arange(NUM)]), "group", 0)) >= 0.3
    label[(np.arange(NUM) % 20 < 2) & (is_train | ~weighs)] = "other"
    columns = {"group": np.arange(NUM), "a": x[:, 0], "b": x[:, 1], "y": label, "w": weighs * (1.0 + is_high)}
    return {name: values if is_whole else values[weighs] for name, values in columns.items()}


class Stages:
    """A model on its rows: what the stages read."""

    def __init__(self, place: Path, prepared: Path, out: Path, spec: Any) -> None:
        self.place, self.prepared, self.out, self.spec = place, prepared, out, spec
        self.preparation = Preparation.load(out)
        target = targets(prepared, "test")
        feed = feed_at(prepared, "test", self.preparation, np.arange(len(target)))
        self.evidence = Evidence(
            self.preparation.task,
            target,
            predict(out / MODEL_FILE, [feed], self.preparation),
            weights=weights_of(prepared, "test"),
            thresholds={"challenger": self.preparation.class_head.decision},
        )
        files = SimpleNamespace(folder=out, file=lambda name: out / name, result={"has_learnt_validation": True})
        self.inputs: Any = {"prepare": SimpleNamespace(folder=prepared), "export": files}


def _worst(stages: Stages) -> Any:
    worst = worst_examples(stages.prepared, stages.preparation, stages.evidence)
    return worst.model_dump(exclude={"examples": {"__all__": {"row"}}})


def _figures(stages: Stages) -> Any:
    verdict = judge(stages.evidence, Judge(resamples=100), METRICS["accuracy"])
    return verdict_figures.verdict_figures(stages.evidence, verdict, stages.preparation.target)


def _columns_worth(stages: Stages) -> Any:
    measured = importances(stages.inputs, stages.spec, stages.place)
    assert measured is not None
    assert measured.is_learnt
    rows = [(row.column, round(row.loss, 9), round(row.low, 9), round(row.high, 9)) for row in measured.columns]
    return rows, measured.num_rows


def _background(stages: Stages) -> Any:
    path = write_background(stages.place, stages.prepared, stages.preparation, shows_rows=True)
    assert path is not None
    return path.read_text()


def _benchmark(stages: Stages) -> Any:
    rows = BenchmarkRows.of(stages.prepared, stages.preparation)
    columns = [{name: values.tolist() for name, values in feed.items()} for feed in rows.validation]
    return rows.target.tolist(), columns


SHOWN: dict[str, Callable[[Stages], Any]] = {
    "the worst rows": _worst,
    "the figures of a verdict": _figures,
    "the classes that are never predicted": lambda stages: never_predicted(stages.evidence).tolist(),
    "the training rows of each class": lambda stages: class_rows(stages.prepared, ["no", "other", "yes"]),
    "what the columns are worth": _columns_worth,
    "the background of explanations": _background,
    "the rows that smaller variants are measured on": _benchmark,
}
"""A stage that samples, counts or shows rows; one that is new belongs here."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stages, Stages]:
    """The same model on all rows, and on those that weigh something."""
    place = tmp_path_factory.mktemp("zero")
    data = {"weight": "w", "split": {"by": "group", "column": "group"}, "features": {"columns": ["a", "b"]}}
    tables = [
        prepared_table(place / name, columns_of(is_whole=name == "whole"), data=data) for name in ("whole", "counted")
    ]
    job = fitted(place / "job", tables[0], "linear")
    answers(job, out := place / "out")
    made = []
    for name, (spec, _) in zip(("whole", "counted"), tables, strict=True):
        (place / f"stages-{name}").mkdir()
        made.append(Stages(place / f"stages-{name}", place / name / "prepared", out, spec))
    return made[0], made[1]


@pytest.mark.parametrize("stage", SHOWN)
def test_every_stage_that_shows_rows_or_counts_them(
    both: tuple[Stages, Stages], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.judge.importance.MOST_CPU_S", 1e3)
    monkeypatch.setattr("models.judge.importance.MOST_ROWS", 60)
    monkeypatch.setattr("tasks.steps.importances.MOST_ROWS", 60)
    whole, counted = (SHOWN[stage](stages) for stages in both)
    assert whole == counted
