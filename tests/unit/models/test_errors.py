"""Errors: every one that a person meets is a LooplineError, with the exit code that scripts rely on."""

import inspect

import pytest

from models import errors


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.UsageError, 2),
        (errors.DataError, 1),
        (errors.UserCodeError, 1),
        (errors.TrainingError, 1),
        (errors.StoreError, 1),
        (errors.GateRefused, 3),
    ],
)
def test_exit_codes(kind: type[errors.LooplineError], exit_code: int) -> None:
    with pytest.raises(errors.LooplineError) as caught:
        raise kind("where: got x, expected y: do z")
    assert caught.value.exit_code == exit_code
    assert str(caught.value) == "where: got x, expected y: do z"


def test_the_nearest_name_is_the_cure() -> None:
    assert errors.did_you_mean("hiden", ["layers", "hidden"], "look") == "did you mean 'hidden'?"
    assert errors.did_you_mean("xyz", ["layers", "hidden"], "look") == "look"
    assert errors.did_you_mean("a/b.csv", ["c/d/b.csv"], "look", nearness=0.3) == "did you mean 'c/d/b.csv'?"


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    kinds = [name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert all(name in (errors.__doc__ or "") for name in kinds)


def test_the_errors_that_led_to_an_error_are_known() -> None:
    first, second, third = KeyError("first"), ValueError("second"), OSError("third")
    third.__cause__, second.__context__ = second, first
    assert list(errors.with_causes(third)) == [third, second, first]
