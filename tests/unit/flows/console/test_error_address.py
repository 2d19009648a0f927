"""The address of an error is the module that raised it, also if a rank did."""

import pytest

from flows.console.error_address import address_of
from models.errors import DataError, LooplineError
from models.project_spec.reader import read_spec
from tasks.ranks.rank_pool import rebuilt


def test_it_is_the_module_that_raised_it(tmp_path) -> None:
    with pytest.raises(LooplineError) as caught:
        read_spec(tmp_path / "project.yaml")
    assert address_of(caught.value) == "reference/errors#models.project_spec.reader"


def test_an_error_of_a_rank_has_the_address_of_the_ranks_traceback() -> None:
    import models.training.loop as module

    trace = f'Traceback:\n  File "{module.__file__}", line 9, in run\n  File "/usr/lib/python3/json.py", line 3, in f\n'
    with pytest.raises(LooplineError) as caught:
        raise rebuilt("TrainingError", "train: the loss is NaN", trace)
    assert address_of(caught.value) == "reference/errors#models.training.loop"


def test_an_error_from_elsewhere_has_none() -> None:
    assert address_of(DataError("never raised")) is None
