import numpy as np
import pytest

from models.errors import UsageError
from models.inference.names import output_names, refuse_taken_names, scores_of
from models.inputs.numeric.record import NumericInput
from models.kinds.task import Task
from tests.finished_jobs import image_preparation, table_preparation


def test_outputs_are_named_by_task() -> None:
    assert output_names(table_preparation("multiclass").task) == ["label", "probabilities"]
    assert output_names(table_preparation("regression").task) == ["prediction"]


def test_a_column_named_like_an_output_is_refused_with_the_cure() -> None:
    column = NumericInput(name="label", fill=0.0)
    taken = table_preparation().with_inputs("numeric", [column])
    with pytest.raises(UsageError, match=r"'label'.*rename"):
        refuse_taken_names(taken)
    refuse_taken_names(taken.model_copy(update={"task": "regression"}))
    refuse_taken_names(image_preparation())


@pytest.mark.parametrize(
    ("task", "outputs", "scores"),
    [
        ("binary", {"probabilities": np.array([[0.25, 0.75]], np.float32)}, [0.75]),
        ("multiclass", {"probabilities": np.eye(1, 2)}, [[1.0, 0.0]]),
        ("regression", {"prediction": np.array([2.5], np.float32)}, [2.5]),
        ("language", {"probability": np.array([0.5]), "bits_per_char": np.array([3.0])}, [3.0]),
    ],
)
def test_the_logged_scores_of_each_task(task: Task, outputs: dict[str, np.ndarray], scores: list[object]) -> None:
    values = scores_of(outputs, task)
    assert (values.dtype, values.tolist()) == (np.float64, scores)
