"""Facts of retraining are what their JSON says: they go through events, files and Prefect's parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.triggers.signal import Decision, Signal

signals = st.builds(
    Signal,
    id=st.text(min_size=1),
    kind=st.sampled_from(["schedule", "new_data", "decay", "broken_data", "drift", "person"]),
    at=st.floats(0, 1e10),
    reason=st.text(),
    evidence=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False) | st.text() | st.none()),
)


@given(signals)
def test_they_survive_json(signal: Signal) -> None:
    decision = Decision(signal=signal, at=signal.at, action="wait", reasons=["why"], until=None)
    assert Decision.model_validate_json(decision.model_dump_json()) == decision


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValidationError, match="kind"):
        Signal.model_validate({"id": "s", "kind": "whim", "at": 1.0, "reason": ""})
    with pytest.raises(ValidationError, match="urgent"):
        Signal.model_validate({"id": "s", "kind": "decay", "at": 1.0, "reason": "", "urgent": True})
