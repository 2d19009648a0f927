"""The window of a spec."""

import pytest
from pydantic import ValidationError

from models.project_spec.window import Window


def test_a_frequency_may_be_a_number_and_an_unknown_one_names_its_key() -> None:
    assert Window.model_validate({"length": 3, "frequency": 5}).frequency == "5"
    with pytest.raises(ValidationError, match="frequency: got 'often', expected"):
        Window.model_validate({"length": 3, "frequency": "often"})


@pytest.mark.parametrize("parallel", ["tp", "fsdp+pp"])
def test_a_plan_that_divides_layers_needs_no_reference(parallel: str) -> None:
    Window(length=3, reference="none").check_plan(parallel)
    Window(length=3).check_plan("fsdp")
    with pytest.raises(ValueError, match=r"data.window.reference: auto\) is around them: say `reference: none`"):
        Window(length=3).check_plan(parallel)
