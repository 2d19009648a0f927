import signal

import pytest
from prefect.exceptions import TerminationSignal

from flows.prefect.steps import unmasked


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
