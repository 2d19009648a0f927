"""Stored data neither changes nor has fields that nobody knows."""

import pytest
from pydantic import ValidationError

from models.frozen_model import FrozenModel


class Point(FrozenModel):
    x: float


def test_a_field_cannot_change_and_an_unknown_one_is_refused() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Point(x=1).x = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra"):
        Point.model_validate({"x": 1, "y": 2})
