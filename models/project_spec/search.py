"""The `search` block: how hyperparameters are searched, and the dimensions of a search space."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from models.project_spec.block import MOST_WHOLE, SpecBlock, Whole

MOST_VALUES = 100_000
"""Most values of a dimension of a grid, which are listed."""


class Dimension(SpecBlock):
    """One dimension of a search space: a range (`low`, `high`) or `choices`."""

    low: float | None = Field(None, description="Least value.")
    high: float | None = Field(None, description="Largest value.")
    log: bool = Field(False, description="Draw on the scale of logarithms.")
    step: float | None = Field(None, gt=0, description="Distance between two values.")
    integer: bool = Field(False, description="Whole numbers only.")
    choices: list[Any] | None = Field(None, min_length=1, description="The values, instead of low and high.")

    @field_validator("low", "high", "step", mode="before")
    @classmethod
    def _whole_numbers_are_numbers(cls, value: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < sys.float_info.max
        return float(value) if is_number else value

    @model_validator(mode="after")
    def _range_or_choices(self) -> Dimension:
        if (self.choices is None) == (self.low is None or self.high is None):
            raise ValueError("give either `choices`, or both `low` and `high`")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low {self.low:g} must be under high {self.high:g}")
        if self.log and (self.low is None or self.low <= 0):
            raise ValueError("a log range needs low > 0")
        if self.log and self.integer and self.low is not None and self.low < 1:
            raise ValueError(f"a log range of integers needs low >= 1, got {self.low:g}: say `low: 1`, or drop `log`")
        if self.log and self.step and not (self.integer and self.step == 1):
            raise ValueError(f"a log range has no step, got {self.step:g}: drop `log` or `step`, or name `choices`")
        if self.integer and max(abs(self.low or 0), abs(self.high or 0)) > MOST_WHOLE:
            raise ValueError(f"got integers from {self.low:g} to {self.high:g}, expected {MOST_WHOLE} at most")
        if self.integer and self.step and self.step % 1:
            raise ValueError(f"integers need a whole step, got {self.step:g}: say `step: 1`, or drop `integer`")
        return self


class Search(SpecBlock):
    """How hyperparameters are searched. `trials: 0` trains with the spec's own settings."""

    trials: Whole = Field(10, ge=0, description="Trainings of the search; 0: none.")
    sampler: Literal["tpe", "random", "gp", "cmaes", "nsga2", "grid"] = Field(
        "tpe", description="The sampler of Optuna."
    )
    pruner: Literal["median", "hyperband", "halving", "none"] = Field(
        "median", description="Ends trials early that look bad."
    )
    on: str = Field(
        "here",
        min_length=1,
        description="Where trials are trained: a place of places.yaml, on which each trial is a job of its own.",
    )
    workers: Whole = Field(
        1, ge=1, description="Trials that run at once. With more than one, their order cannot be reproduced."
    )
    timeout_s: float | None = Field(None, gt=0, description="Seconds after which no trial begins.")
    folds: Whole = Field(
        1,
        ge=1,
        description="k > 1: k-fold cross-validation over train and validation rows. Series and a split by time: each "
        "of k blocks is judged by a model of the rows before it.",
    )
    epochs: Whole | None = Field(
        None, ge=1, description="Epochs of a trial; default: half of train.epochs, all where that is not set."
    )
    sample: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="Share of the training rows a trial sees.")
    budget_s: float | None = Field(
        None,
        gt=0,
        description="Work after which no further trial begins, in seconds of a reference core: counted from rows, "
        "rounds and operations, not by the clock, so that the search can be repeated. Default: where `model.net: auto` "
        "chooses between families, 15 times the first trial, between 6 and 600. There a net's first trial has only the "
        "epochs that fit into it, its later ones end in their middle, and the trials from which a family starts count "
        "that family's work alone. A net of pictures, series or texts and one of your own, if train.epochs is "
        "not set: 3 times the first trial. Else none.",
    )
    patience: Whole | None = Field(
        None,
        ge=1,
        description="Trials without an improvement after which the search ends. Default: 4 where `model.net: auto` "
        "chooses between families, else none.",
    )
    families: list[str] | None = Field(
        None,
        min_length=1,
        description="What `model.net: auto` chooses from, first tried first: ready nets (trees, linear, mlp, tabm, "
        "transformer, gru) and references, such as `xgboost:XGBClassifier`. Default: trees, linear, mlp for a table, "
        "and transformer if `data.features.kinds` declares a text; trees, linear, gru for a series; descriptors, "
        "resnet for images.",
    )
    ensemble: bool = Field(
        True,
        description="Where `model.net: auto` chooses between families: join the best models, at most two a family (of "
        "a series or images one), to a weighted mean, if that is better on validation. false: one model alone.",
    )
    bag: bool = Field(
        True,
        description="Where `model.net: auto` chooses between families of a table of at most 5,000 training and "
        "validation rows: train the best trial of each family on five folds of these rows, and serve the mean; "
        "weights, calibration and decision come from the rows that each model has not seen. Not where rows are split "
        "by time or position.",
    )
    space: dict[str, Dimension] | None = Field(
        None,
        description="Keys are spec paths: train.lr, model.hidden. Default: the net's own space, without the keys "
        "that the spec sets.",
    )
    settings: dict[str, Any] | None = Field(
        None, description="Settings from an earlier search, by spec path, used as they are. Needs `trials: 0`."
    )

    @field_validator("families")
    @classmethod
    def _each_once(cls, families: list[str] | None) -> list[str] | None:
        if families is not None and len({*families}) < len(families):
            raise ValueError(f"expected each family once, got {', '.join(families)}")
        return families

    @field_validator("space")
    @classmethod
    def _searchable(cls, space: dict[str, Dimension] | None) -> dict[str, Dimension] | None:
        for path in space or ():
            if path.split(".")[0] not in ("train", "model") or path.count(".") != 1:
                raise ValueError(f"cannot search {path!r}: expected train.<key> or model.<argument>")
        return space

    @model_validator(mode="after")
    def _grid_can_be_listed(self) -> Search:
        for path, parameter in (self.space or {}).items() if self.sampler == "grid" else ():
            if (
                parameter.low is not None
                and parameter.high is not None
                and (parameter.high - parameter.low) / (parameter.step or 1) > MOST_VALUES
            ):
                raise ValueError(
                    f"space.{path}: a grid from {parameter.low:g} to {parameter.high:g} has more than {MOST_VALUES:,} "
                    "values: "
                    "take a larger `step`, name `choices`, or another sampler"
                )
        return self

    @model_validator(mode="after")
    def _settings_need_no_search(self) -> Search:
        if self.settings is not None and self.trials:
            raise ValueError(f"settings are trained with as they are, but trials is {self.trials}: say `trials: 0`")
        return self
