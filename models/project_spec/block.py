"""The base class and the common types of the spec's blocks."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticKnownError

Reference = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


def _is_own_function(value: str, info: ValidationInfo) -> str:
    if ":" not in value:
        name = info.field_name
        raise ValueError(f"{name} names your own function, such as ./own.py:{name}, got {value!r}")
    return value


OwnFunction = Annotated[
    Reference,
    AfterValidator(_is_own_function),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": ":"}),
]
"""A reference to the user's code, which is no built-in's name."""
_MAY_31 = datetime(2024, 5, 31, 14, 30)


def _checked_dates(forms: dict[str, str]) -> dict[str, str]:
    for name, form in forms.items():
        with contextlib.suppress(ValueError):
            if datetime.strptime(_MAY_31.strftime(form), form).date() == _MAY_31.date():
                continue
        raise ValueError(
            f"{name}: got {form!r}, expected a form of Python's strptime with year, month and day, such as "
            f"'%d.%m.%Y %H:%M' for {_MAY_31:%d.%m.%Y %H:%M}"
        )
    return forms


Dates = Annotated[dict[str, str], AfterValidator(_checked_dates)]
"""The form of the texts of each column that are dates, by name."""
Fraction = Annotated[float, Field(gt=0, lt=1)]
MOST_WHOLE = 2**31 - 1
Whole = Annotated[int, Field(le=MOST_WHOLE)]
"""A count, a size or another whole number: libraries in C hold 32 bits of it."""
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
MAX_OUTPUTS = 200
"""Most targets, quantiles or horizons of a model: each is a column of every answer and of the prediction log."""


def number_as_text(value: object) -> object:
    """Return an integer as text, for text that YAML may read as a number; anything else as it is."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NumberText = Annotated[
    str,
    BeforeValidator(number_as_text),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}),
]
"""Text that YAML may read as a number."""


def value_as_text(value: object) -> object:
    """Return an integer or a boolean as the text that a class of the data has; anything else as it is."""
    return str(value).lower() if isinstance(value, int) else value


ClassName = Annotated[
    str,
    BeforeValidator(value_as_text),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}, {"type": "boolean"}]}),
]
"""A class of the target: booleans of the data are the classes `true` and `false`."""
NODES = r"^[1-9]\d{0,5}(:[1-9]\d{0,5})?$"
Nodes = Annotated[
    str,
    BeforeValidator(number_as_text),
    Field(pattern=NODES),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 999_999}, {"type": "string", "pattern": NODES}]}
    ),
]
"""A number of machines, or the least and the most of them."""


def _one_or_several(value: str | list[str]) -> str | list[str]:
    if not value or (isinstance(value, list) and len(set(value)) < len(value)):
        raise ValueError(f"got {value!r}, expected the name of a column, or of several different ones")
    if isinstance(value, list) and len(value) == 1:
        raise ValueError(f"got a list of one column: write its name alone, `{value[0]}`")
    if isinstance(value, list) and len(value) > MAX_OUTPUTS:
        raise ValueError(f"got {len(value)} columns, expected {MAX_OUTPUTS} at most: make several projects")
    return value


_Name = Annotated[str, Field(min_length=1)]
Names = Annotated[_Name | list[_Name], AfterValidator(_one_or_several)]
"""The name of a column, or a list of several different names."""


def _auto_is_zero(value: Any) -> Any:
    """Convert `auto` to 0: a batch is always a number; the dump has `auto` again, so a 0 in a spec is an error."""
    if value == 0 and not isinstance(value, bool):
        raise PydanticKnownError("greater_than", {"gt": 0})
    return 0 if value == "auto" else value


Batch = Annotated[
    Whole,
    BeforeValidator(_auto_is_zero),
    PlainSerializer(lambda batch: batch or "auto", return_type=Any),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_WHOLE}, {"const": "auto"}]}),
]


class SpecBlock(BaseModel):
    """Base of all blocks: unknown keys are errors, types are strict, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Expectation(SpecBlock):
    """One Great Expectations check, by its snake_case name or a reference to your own class, with its own arguments."""

    expect: str = Field(description="For example `column_values_to_be_between`, or `./checks.py:ExpectColumnToBeEven`.")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of the expectation, as in its gallery."
    )
    severity: Literal["reject", "warn"] = Field(
        "reject", description="reject stops the loop, warn is said on the card."
    )
    on: Literal["raw", "prepared"] = Field(
        "raw", description="raw: the rows of the source; prepared: the clean rows with their splits."
    )
