"""The record of what the columns are worth to a model; pages read it without numpy."""

from __future__ import annotations

from pydantic import Field

from models.frozen_model import FrozenModel


class ColumnImportance(FrozenModel):
    """What a column is worth to a model."""

    column: str = Field(description="Of the data.")
    loss: float = Field(description="How much worse the metric is with the column shuffled; above 0 is worse.")
    low: float = Field(description="Lower end of the 95 % interval over the shuffles.")
    high: float = Field(description="Its upper end.")


class Importances(FrozenModel):
    """What the columns are worth to a model, the first most."""

    columns: list[ColumnImportance]
    num_columns: int = Field(description="Columns that the model takes, measured or not.")
    num_rows: int = Field(description="Validation rows that were shuffled.")
    is_learnt: bool = Field(False, description="Whether the model has learnt from these rows too.")
    num_shuffles: int = Field(description="Shuffles of each column.")
    cpu_s: float = Field(description="What it cost, in CPU-seconds.")
