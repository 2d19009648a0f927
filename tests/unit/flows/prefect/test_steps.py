import asyncio
import errno
import signal
from typing import Any, cast

import pytest
from prefect.exceptions import TerminationSignal
from prefect.states import Failed

from flows.prefect.steps import _may_mend, unmasked
from models.errors import DataError, LeaseLostError, StoreError


def masked() -> None:
    try:
        raise TerminationSignal(signal=signal.SIGTERM)
    finally:
        raise ValueError("Task run is not set")


def test_a_sigterm_that_prefect_turned_into_an_error_is_a_sigterm_again() -> None:
    with pytest.raises(TerminationSignal) as ended, unmasked():
        masked()
    assert ended.value.signal == signal.SIGTERM


def test_any_other_error_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="wrong"), unmasked():
        raise ValueError("wrong")


def of_the_system(number: int) -> StoreError:
    error = StoreError("not written")
    error.__cause__ = OSError(number, "refused")
    return error


@pytest.mark.parametrize(
    ("error", "mends"),
    [
        (StoreError("away"), True),
        (of_the_system(errno.ENOSPC), True),
        (of_the_system(errno.EROFS), False),
        (of_the_system(errno.EACCES), False),
        (LeaseLostError("taken over"), False),
        (DataError("NaN"), False),
    ],
)
def test_a_store_that_is_away_may_come_back_and_a_lost_lease_does_not(error: Exception, mends: bool) -> None:
    assert asyncio.run(_may_mend(cast("Any", None), cast("Any", None), Failed(data=error))) == mends
