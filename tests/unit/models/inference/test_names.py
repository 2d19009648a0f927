import pytest

from models.data.preparation import NumericInput
from models.errors import UsageError
from models.inference.names import output_names, refuse_taken_names
from tests.finished_jobs import image_preparation, table_preparation


def test_outputs_are_named_by_task() -> None:
    assert output_names(table_preparation("multiclass")) == ["label", "probabilities"]
    assert output_names(table_preparation("regression")) == ["prediction"]


def test_a_column_named_like_an_output_is_refused_with_the_cure() -> None:
    column = NumericInput(name="label", fill=0.0)
    taken = table_preparation().model_copy(update={"numeric": [column]})
    with pytest.raises(UsageError, match=r"'label'.*rename"):
        refuse_taken_names(taken)
    refuse_taken_names(taken.model_copy(update={"task": "regression"}))
    refuse_taken_names(image_preparation())
