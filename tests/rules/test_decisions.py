"""The rule of decisions: classes and labels are decided for the goal, in the graph, and every stage judges them so.

One model of three classes (82, 9 and 9 %) and one of two labels is exported for each goal. As its graph decides, it
must be no worse on held-out rows than by the likeliest class, or at 0.5.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sklearn.metrics as sk

from models.backtest.contest import PREPARED, contest
from models.data.feeds import feeds
from models.inference.portable import LABEL, LABELS, MODEL_FILE
from models.metrics.classification import at_threshold
from models.metrics.metrics import METRICS, metric_of
from models.training.model_choice import decide
from tests.goal_jobs import answers, fitted, prepared_table, true_values

OF_CLASSES = [name for name, metric in METRICS.items() if "multiclass" in metric.tasks]
OF_LABELS = [name for name, metric in METRICS.items() if "multilabel" in metric.tasks]
GAINS = {
    "multiclass": {"f1": 0.08, "balanced_accuracy": 0.1, "recall": 0.1},
    "multilabel": {"f1": 0.08, "f1_micro": 0.05},
}
"""What the decision gains at least over the likeliest class or 0.5; of all other goals nothing is lost."""


def _columns(task: str) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(4000, 3))
    columns: dict[str, Any] = {f"x{at}": x[:, at] for at in range(3)}
    if task == "multilabel":
        chance = 1 / (1 + np.exp(2.9 - 1.3 * x))
        return columns | {name: (rng.random(4000) < chance[:, at]).astype(int) for at, name in enumerate(("y", "z"))}
    power = np.exp(np.stack([np.zeros(4000), 1.2 * x[:, 0] - 2.8, 1.2 * x[:, 1] - 2.8], axis=1))
    ladder = np.cumsum(power / power.sum(axis=1, keepdims=True), axis=1)
    return columns | {"y": np.array(["usual", "low", "high"])[(rng.random((4000, 1)) > ladder).sum(axis=1)]}


@pytest.fixture(scope="module", params=["multiclass", "multilabel"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(task, finished job, spec), trained once."""
    place, task = tmp_path_factory.mktemp("decisions"), request.param
    data = {"target": ["y", "z"]} if task == "multilabel" else {}
    split = {"by": "random", "validation": 0.25, "test": 0.5}
    prepared = prepared_table(place / "table", _columns(task), data={**data, "split": split}, judge={"resamples": 100})
    return task, fitted(place / "job", prepared, "trees", {"rounds": 40, "num_leaves": 4}, epochs=2), prepared[0]


def _answered(job: Any, out: Path, preparation: Any) -> np.ndarray:
    """What the graph answers: class indices (row,), or flags (row, label)."""
    name = LABELS if preparation.task == "multilabel" else LABEL
    session = onnxruntime.InferenceSession(out / MODEL_FILE)
    parts = [session.run([name], feed)[0] for feed in feeds(job.prepared, "test", preparation)]
    answers = np.concatenate(parts)
    return answers if name == LABELS else np.array([preparation.target.classes.index(each) for each in answers])


@pytest.mark.parametrize("goal", sorted({*OF_CLASSES, *OF_LABELS}))
def test_what_the_graph_answers_is_no_worse_than_the_likeliest(model: Any, tmp_path: Path, goal: str):
    task, job, spec = model
    if task not in METRICS[goal].tasks:
        return
    metric = metric_of(spec.goal.model_copy(update={"metric": goal}), _Task(task, job), job.project)
    job = job.model_copy(update={"metric": goal, "direction": metric.direction})
    target, predicted, preparation, _ = answers(job, tmp_path)
    decision = preparation.class_head.decision
    moved = at_threshold(predicted, decision)
    answered = _answered(job, tmp_path, preparation)
    np.testing.assert_array_equal(answered, moved.argmax(axis=1) if task == "multiclass" else moved > 0.5)

    value = metric.at(decision).value(target, predicted)
    gain = metric.sign * (value - metric.value(target, predicted))
    assert gain >= GAINS[task].get(goal, 0.0)
    if goal == "accuracy" or not (metric.decides or goal in ("roc_auc", "pr_auc")):
        assert gain == 0
        assert np.all(decision == 0.5), "the likeliest class, or 0.5"
    averages = {"f1": "macro", "f1_micro": "micro"}
    if goal in averages:
        assert value == pytest.approx(sk.f1_score(target.astype(int), answered.astype(int), average=averages[goal]))

    (tmp_path / PREPARED).symlink_to(job.prepared)
    verdict = contest(
        tmp_path, None, spec.model_copy(update={"goal": spec.goal.model_copy(update={"metric": goal})}), tmp_path
    )
    assert verdict.challenger.value == pytest.approx(value), "the judge sees what the graph answers"
    for name, each in METRICS.items():
        if task in each.tasks:
            seen = each.of(preparation.outputs).at(decision).value(target, predicted)
            assert verdict.metrics[name]["challenger"] == pytest.approx(seen)


def test_a_trial_is_scored_as_its_export_would_decide(model: Any, tmp_path: Path):
    task, job, spec = model
    job = job.model_copy(update={"metric": "f1"})
    _, predicted, preparation, _ = answers(job, tmp_path, "validation")
    target = true_values(job, "validation")
    metric = metric_of(spec.goal.model_copy(update={"metric": "f1"}), preparation, job.project)
    exported = metric.at(preparation.class_head.decision).value(target, predicted)
    decided = decide(metric, task, target, predicted)
    assert decided.metric.value(target, decided.apply(predicted)) == pytest.approx(exported, abs=0.03)
    assert exported > metric.value(target, predicted) + 0.08


class _Task:
    """What a metric must know of a model, before it is exported."""

    def __init__(self, task: str, job: Any) -> None:
        from models.data.preparation import Preparation

        self.task, self.outputs = task, Preparation.load(job.prepared).outputs
