"""Forms of dates that a spec names, as of Python's `strptime`."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator

_MOMENT = datetime(2024, 5, 31, 14, 30)


def _checked(forms: dict[str, str]) -> dict[str, str]:
    for name, form in forms.items():
        with contextlib.suppress(ValueError):
            if datetime.strptime(_MOMENT.strftime(form), form).date() == _MOMENT.date():
                continue
        raise ValueError(
            f"{name}: got {form!r}, expected a form of Python's strptime with year, month and day, such as "
            f"'%d.%m.%Y %H:%M' for {_MOMENT:%d.%m.%Y %H:%M}"
        )
    return forms


Dates = Annotated[dict[str, str], AfterValidator(_checked)]
"""The form of the texts of each column that are dates, by name."""
