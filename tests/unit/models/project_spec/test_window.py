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


@pytest.mark.parametrize(
    ("horizon", "steps"), [(7, [7]), ([1, 7, 14], [1, 7, 14]), ({"first": 2, "last": 4}, [2, 3, 4])]
)
def test_a_horizon_is_one_step_ahead_or_several(horizon: object, steps: list[int]) -> None:
    window = Window.model_validate({"length": 3, "horizon": horizon})
    assert window.horizons == steps
    assert window.last_horizon == steps[-1]
    assert Window.model_validate_json(window.model_dump_json()) == window


@pytest.mark.parametrize(
    "horizon", [0, True, "7", [], [3], [2, 1], [1, 1], [0, 1], {"first": 4, "last": 2}, {"last": 3}]
)
def test_a_horizon_that_is_none_says_what_was_expected(horizon: object) -> None:
    with pytest.raises(ValidationError, match=r"a whole number from 1 to 2147483647, or several, ascending"):
        Window.model_validate({"length": 3, "horizon": horizon})


@pytest.mark.parametrize(
    ("horizon", "got"),
    [({"first": 1, "last": 10**9}, "1,000,000,000"), ({"first": 5, "last": 205}, "201"), (list(range(1, 202)), "201")],
)
def test_more_horizons_than_outputs_are_refused_before_a_range_becomes_a_list(horizon: object, got: str) -> None:
    with pytest.raises(ValidationError, match=f"got {got} horizons, expected 200 at most"):
        Window.model_validate({"length": 3, "horizon": horizon})
    assert len(Window.model_validate({"length": 3, "horizon": {"first": 5, "last": 204}}).horizons) == 200
