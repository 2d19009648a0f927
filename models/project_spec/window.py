"""The `data.window` block of a spec: the examples of series."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from models.project_spec.block import MAX_OUTPUTS, MOST_WHOLE, NumberText, SpecBlock, Whole
from models.project_spec.frequency import parse_frequency

_STEP = {"type": "integer", "minimum": 1, "maximum": MOST_WHOLE}
_RANGE = {
    "type": "object",
    "properties": {"first": _STEP, "last": _STEP},
    "required": ["first", "last"],
    "additionalProperties": False,
}


def _steps_ahead(value: Any) -> Any:
    """Return the steps ahead: a range, `{first, last}`, as the list of its steps."""
    got, num = value, len(value) if isinstance(value, list) else 1
    is_range = isinstance(value, dict) and set(value) == {"first", "last"} and all(map(_is_step, value.values()))
    if is_range:
        num = value["last"] - value["first"] + 1
    if num > MAX_OUTPUTS:
        raise ValueError(
            f"got {num:,} horizons, expected {MAX_OUTPUTS} at most, each is an output: name fewer, such as "
            "`horizon: [1, 7, 14]`"
        )
    if is_range:
        value = list(range(value["first"], value["last"] + 1))
    steps = value if isinstance(value, list) else [value]
    is_list_of_one = isinstance(value, list) and len(steps) < 2
    if is_list_of_one or not all(map(_is_step, steps)) or steps != sorted(set(steps)):
        raise ValueError(
            f"got {got!r}, expected a whole number from 1 to {MOST_WHOLE}, or several, ascending: `horizon: 7`, "
            "`horizon: [1, 7, 14]` or `horizon: {first: 1, last: 7}`"
        )
    return value


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_WHOLE


_LIST = {"type": "array", "items": _STEP, "minItems": 2, "maxItems": MAX_OUTPUTS, "uniqueItems": True}
Horizon = Annotated[
    int | list[int],
    BeforeValidator(_steps_ahead),
    WithJsonSchema({"anyOf": [_STEP, _LIST, _RANGE]}),
]
"""How many steps ahead a model of series predicts: one number, or several."""


class Window(SpecBlock):
    """The examples of a series: `length` past steps predict the target `horizon` steps ahead."""

    length: Whole = Field(gt=0, description="Steps that the model reads.")
    horizon: Horizon = Field(
        1,
        description="Steps ahead. `7`: the 7th step alone. `[1, 7, 14]` or `{first: 1, last: 7}`: each of these steps, "
        "an output each, 200 at most.",
    )
    stride: Whole = Field(1, ge=1, description="Steps between the starts of two windows.")
    frequency: NumberText | None = Field(
        None,
        description="Distance between two steps: `hour`, `30 minutes`, `day`, `weekday`, `week`, `month`, `quarter`, "
        "`year`, or a number where times are numbers. `rows`: every row is a step, times only give the order. Default: "
        "inferred from the times.",
    )
    gaps: Literal["refuse", "fill", "break"] = Field(
        "refuse",
        description="Where steps are missing. refuse: an error. break: no window spans a gap. fill: the missing steps "
        "are inserted without values; a model reads the last known value there, and never learns to predict them.",
    )
    series_key: str | None = Field(
        None,
        min_length=1,
        description="The column that names the series of a row, of many series in one table. No window spans two "
        "series. Never an input, so that a new series can be predicted.",
    )
    known_future: list[str] = Field(
        default_factory=list,
        description="Columns of numbers that are known beforehand, such as holidays or planned prices: their value at "
        "each horizon is an input. Callers give the steps after the window too.",
    )
    season: Whole | None = Field(
        None,
        ge=2,
        description="Steps in a season, for the seasonal naive forecast. Default: a day, a week or a year, whichever "
        "forecasts the training rows best.",
    )
    reference: Literal["auto", "none", "last", "seasonal", "linear"] = Field(
        "auto",
        description="The forecast from the window itself that a net corrects: its last value, the value of a season "
        "ago, or a linear map of the window. auto: the best one on the newest training examples; not for your own net.",
    )

    @field_validator("frequency")
    @classmethod
    def _frequency_is_known(cls, text: str | None) -> str | None:
        return None if text is None else parse_frequency(text).text

    @property
    def horizons(self) -> list[int]:
        """The steps ahead that are predicted, ascending."""
        return self.horizon if isinstance(self.horizon, list) else [self.horizon]

    @property
    def last_horizon(self) -> int:
        """The farthest step ahead: an example is the row of this step, and its window ends so many steps before."""
        return self.horizons[-1]

    def check_plan(self, parallel: str) -> None:
        """Refuse a parallel plan that divides a net's layers while a reference forecast is around them.

        Raises:
            ValueError: Names plan, reference and cure.
        """
        if self.reference != "none" and {"tp", "pp"} & set(parallel.split("+")):
            raise ValueError(
                f"train.parallel {parallel} divides a net's layers, but the reference forecast of series "
                f"(data.window.reference: {self.reference}) is around them: say `reference: none`"
            )
