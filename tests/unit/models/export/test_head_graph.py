import numpy as np
import pytest

from models.export.head_graph import graph_outputs, head_part
from models.inference.names import output_names
from tests.finished_jobs import CLASSES, run_stretch, table_preparation

CLASSIFIED = ["label", "probabilities"]


@pytest.mark.parametrize(
    ("task", "names"),
    [("binary", CLASSIFIED), ("multiclass", CLASSIFIED), ("regression", ["prediction"])],
)
def test_outputs_are_named_by_task(task: str, names: list[str]) -> None:
    preparation = table_preparation(task)
    assert output_names(preparation) == names
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
