import pytest
from pydantic import ValidationError

from models.frozen_model import FrozenModel


class Size(FrozenModel):
    width: int = 1


def test_an_unknown_field_is_an_error_and_a_known_one_cannot_change():
    with pytest.raises(ValidationError, match="widht"):
        Size.model_validate({"widht": 2})
    with pytest.raises(ValidationError, match="frozen"):
        Size().width = 2  # type: ignore[misc]
    assert Size(width=2).model_copy(update={"width": 3}) == Size(width=3)
