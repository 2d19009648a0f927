import numpy as np
import pytest
import torch

from models.data.outputs import with_outputs
from models.data.preparation import ClassHead
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.export.head_graph import graph_outputs, head_part
from models.inference.names import output_names
from models.metrics.classification import at_threshold, predicted_class
from models.training.optimisation.losses import predictions
from tests.finished_jobs import CLASSES, run_stretch, table_preparation

CLASSIFIED = ["label", "probabilities"]


@pytest.mark.parametrize(
    ("task", "names"),
    [("binary", CLASSIFIED), ("multiclass", CLASSIFIED), ("regression", ["prediction"])],
)
def test_outputs_are_named_by_task(task: str, names: list[str]) -> None:
    preparation = table_preparation(task)
    assert output_names(preparation.task) == names
    assert [value.name for value in graph_outputs(preparation)] == names


def test_a_logit_becomes_two_probabilities_and_a_label() -> None:
    logits = np.array([[-30.0], [0.0], [2.0]], np.float32)
    label, probabilities = run_stretch(head_part(table_preparation(), "core/out"), {"core/out": logits}, CLASSIFIED)
    assert label.tolist() == ["ja", "ja", "né"]
    np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-logits[:, 0].astype(np.float64))), rtol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert probabilities[0, 1] > 0, "a small probability keeps its digits"


def test_logits_become_a_distribution_over_the_classes_and_a_label() -> None:
    logits = np.array([[1.0, 2.0, 0.0], [500.0, 0.0, -500.0]], np.float32)
    label, probabilities = run_stretch(
        head_part(table_preparation("multiclass"), "core/out"), {"core/out": logits}, CLASSIFIED
    )
    assert label.tolist() == [CLASSES["multiclass"][1], CLASSES["multiclass"][0]]
    np.testing.assert_allclose(probabilities[0], np.exp([1, 2, 0]) / np.exp([1, 2, 0]).sum(), rtol=1e-6)
    np.testing.assert_allclose(probabilities[1], [1, 0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_regression_is_put_back_into_its_own_unit(dtype: type) -> None:
    raw = np.array([[-1.0], [2.5]], dtype)
    stretch = head_part(table_preparation("regression"), "core/out")
    (prediction,) = run_stretch(stretch, {"core/out": raw}, ["prediction"])
    assert (prediction.tolist(), prediction.dtype) == ([46.0, 60.0], np.float32)


@pytest.mark.parametrize("threshold", [0.3, 0.9])
def test_the_class_head_calibrates_and_decides(threshold: float) -> None:
    logits = np.linspace(-4, 4, 41, dtype=np.float32)[:, None]
    head = ClassHead(slope=0.5, offsets=[0.0, 0.7], threshold=threshold)
    preparation = table_preparation().model_copy(update={"class_head": head})
    label, probabilities = run_stretch(head_part(preparation, "core/out"), {"core/out": logits}, CLASSIFIED)
    expected = 1 / (1 + np.exp(-(0.5 * logits[:, 0].astype(np.float64) + 0.7)))
    np.testing.assert_allclose(probabilities[:, 1], expected, rtol=1e-5)
    np.testing.assert_allclose(predictions(torch.from_numpy(logits), preparation), expected)
    assert label.tolist() == [CLASSES["binary"][int(each > threshold)] for each in expected]


def test_many_classes_are_calibrated_by_slope_and_offsets() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    head = ClassHead(slope=2.0, offsets=[0.0, 1.0, -1.0])
    preparation = table_preparation("multiclass").model_copy(update={"class_head": head})
    label, probabilities = run_stretch(head_part(preparation, "core/out"), {"core/out": logits}, CLASSIFIED)
    power = np.exp(2 * logits.astype(np.float64) + [0, 1, -1])
    np.testing.assert_allclose(probabilities, power / power.sum(axis=1, keepdims=True), rtol=1e-5)
    assert label.tolist() == [CLASSES["multiclass"][each] for each in power.argmax(axis=1)]


SURE = {
    "binary": ClassHead(slope=0.4, offsets=[0.0, 0.3], threshold=0.7),
    "multiclass": ClassHead(slope=0.4, offsets=[0.0, 0.2, -0.3]),
    "multilabel": ClassHead(thresholds=[0.999, 1 - 1e-9, 0.5]),
}


@pytest.mark.parametrize("task", SURE)
def test_logits_40_apart_are_the_trained_models_predictions(task: str) -> None:
    """Cut at a probability of 1e-12 they were .00035 apart, and the export of a very sure net was refused."""
    labels = [OutputColumn(name=name, column=name) for name in ("hot", "wet", "odd")]
    target = TargetEncoding(name="y", classes=CLASSES.get(task), outputs=[] if task in CLASSES else labels)
    update = {"task": task, "target": target, "class_head": SURE[task]}
    preparation = table_preparation().model_copy(update=update)
    steps = np.linspace(-60, 60, 25)[:, None] * np.arange(1, preparation.num_outputs + 1)
    logits, names = (steps / preparation.num_outputs).astype(np.float32), output_names(task)
    got = run_stretch(head_part(preparation, "core/out"), {"core/out": logits}, names)
    served = dict(zip(names, got, strict=True))["probabilities"]
    expected = predictions(torch.from_numpy(logits), preparation)
    np.testing.assert_allclose(served[:, 1] if task == "binary" else served, expected, atol=1e-7)
    decided = at_threshold(expected, preparation.class_head.decision)
    classes = np.array(CLASSES.get(task, []))
    assert got[0].tolist() == (classes[predicted_class(decided)] if task in CLASSES else decided > 0.5).tolist()


def test_a_logarithm_is_undone_inside_the_graph() -> None:
    target = table_preparation("regression").target.model_copy(update={"log_offset": 0.5, "shift": 3.0, "scale": 2.0})
    preparation = table_preparation("regression").model_copy(update={"target": target})
    raw = np.array([[-9.0], [-1.0], [0.3], [1000.0]])
    (prediction,) = run_stretch(head_part(preparation, "core/out"), {"core/out": raw}, ["prediction"])
    np.testing.assert_allclose(prediction, target.decode(raw[:, 0]), rtol=1e-6)
    assert np.isfinite(prediction).all()
    assert prediction[0] == 0, "the floor is inside the graph too"


def test_a_logarithm_of_several_horizons_is_undone_in_graph_and_training_alike() -> None:
    encoding = TargetEncoding(name="y", log_offset=0.5, shift=3.0, scale=2.0)
    preparation = table_preparation("regression").model_copy(update={"target": with_outputs(encoding, [1, 7])})
    raw = np.array([[-9.0, -1.0], [0.3, 1000.0]])
    (prediction,) = run_stretch(head_part(preparation, "core/out"), {"core/out": raw}, ["prediction"])
    expected = np.stack([encoding.decode(raw[:, at]) for at in range(2)], axis=1)
    np.testing.assert_allclose(prediction, expected, rtol=1e-6)
    np.testing.assert_allclose(predictions(torch.from_numpy(raw), preparation), expected, rtol=1e-12)
    values = np.array([[0.0, 1.0], [20.0, 400.0]])
    np.testing.assert_allclose(preparation.target.decode(preparation.target.encode(values)), values, atol=1e-12)


def test_quantiles_are_sorted_within_each_horizon_in_graph_and_training_alike() -> None:
    target = with_outputs(TargetEncoding(name="y", shift=3.0, scale=2.0), [1, 7], [0.1, 0.5, 0.9])
    preparation = table_preparation("regression").model_copy(update={"task": "quantile", "target": target})
    raw = np.array([[2.0, 1.0, 3.0, -5.0, -4.0, -6.0], [0.0, 1.0, 2.0, 9.0, 8.0, 7.0]])
    (prediction,) = run_stretch(head_part(preparation, "core/out"), {"core/out": raw}, ["prediction"])
    expected = 3 + 2 * np.array([[1.0, 2.0, 3.0, -6.0, -5.0, -4.0], [0.0, 1.0, 2.0, 7.0, 8.0, 9.0]])
    np.testing.assert_allclose(prediction, expected, rtol=1e-6)
    np.testing.assert_allclose(predictions(torch.from_numpy(raw), preparation), expected, rtol=1e-12)


def test_scores_of_classes_and_thresholds_of_labels_decide_in_the_graph() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    head = ClassHead(score_weights=[1.0, 2.0, 3.0], score_offsets=[0.1, 0.0, -0.4])
    preparation = table_preparation("multiclass").model_copy(update={"class_head": head})
    label, chances = run_stretch(head_part(preparation, "core/out"), {"core/out": logits}, CLASSIFIED)
    expected = (chances * [1.0, 2.0, 3.0] + [0.1, 0.0, -0.4]).argmax(axis=1)
    assert label.tolist() == [CLASSES["multiclass"][each] for each in expected]
    assert (expected != chances.argmax(axis=1)).any()

    outputs = [OutputColumn(name=name, column=name) for name in ("hot", "wet", "odd")]
    update = {
        "task": "multilabel",
        "target": TargetEncoding(name="y", outputs=outputs),
        "class_head": ClassHead(thresholds=[0.3, 0.5, 0.6]),
    }
    preparation = table_preparation("regression").model_copy(update=update)
    labels, chances = run_stretch(head_part(preparation, "core/out"), {"core/out": logits}, ["labels", "probabilities"])
    np.testing.assert_array_equal(labels, chances > np.array([0.3, 0.5, 0.6]))
    assert (labels != (chances > 0.5)).any()
