"""A form of dates that does not tell the day is refused with the key."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from models.project_spec.blocks import Data


@pytest.mark.parametrize("form", ["%d.%m", "%H:%M", "dd.mm.yyyy", "%Q %d", ""])
def test_a_form_without_a_day_of_a_year_is_refused(form: str) -> None:
    with pytest.raises(ValidationError, match=r"sold: got .*, expected a form of Python's strptime with year, month"):
        Data(source="a.csv", target="y", dates={"sold": form})


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%y%m%d", "%b %d, %Y %I:%M %p", "%Y-%j"])
def test_a_form_with_a_day_of_a_year_is_one(form: str) -> None:
    assert Data(source="a.csv", target="y", dates={"sold": form}).dates == {"sold": form}
