"""A feature that the spec's `data.features.fit` makes of other columns: its record."""

from __future__ import annotations

from typing import ClassVar, Literal

from models.inputs.numeric.record import ScaledNumber


class FittedInput(ScaledNumber):
    """A number that is made of other inputs; how, stands in the preparation's `lookups` and `transform`."""

    PLURAL: ClassVar[str] = "fitted features"
    kind: Literal["fitted"] = "fitted"
    form: Literal["made"] = "made"
