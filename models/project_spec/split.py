"""The block `data.split`: which rows train, which choose, which judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from models.project_spec.block import Fraction, Seed, SpecBlock


class Split(SpecBlock):
    """The split of rows into train, validation and test. Rows keep their split as data grows."""

    by: Literal["time", "group", "stratified", "random", "hash", "position"] = Field(
        "random",
        description="time: oldest rows train; position: first rows train; group: a group is never divided; "
        "hash: by a key column. Text is always by position.",
    )
    column: str | None = Field(
        None, description="The time, group or key column. Required if `by` is time, group or hash."
    )
    validation: Fraction = Field(
        0.15, description="Share of the rows for validation: model selection and early stopping."
    )
    test: Fraction = Field(0.15, description="Share of the rows for the test set, which only the verdict uses.")
    seed: Seed = Field(0, description="Which rows fall into which split.")
    equal_rows: Literal["together", "apart"] | None = Field(
        None,
        description="together: rows that agree in inputs and target are in one split, where the columns identify rows. "
        "Default: together; apart for a project with a champion from before. For by random or stratified.",
    )

    @property
    def deals_rows(self) -> bool:
        """Whether rows are dealt one by one, by their ids or values; else a column or their order decides."""
        return self.by == "stratified" or (self.by == "random" and self.column is None)

    @model_validator(mode="after")
    def _column_where_needed(self) -> Split:
        if self.by in ("time", "group", "hash") and not self.column:
            raise ValueError(f"split by {self.by} needs `column`: name the {self.by} column")
        if self.equal_rows is not None and not self.deals_rows:
            raise ValueError(
                f"equal_rows is for a split by random or stratified without `column`, but rows are split by {self.by}: "
                "drop it"
            )
        if self.validation + self.test >= 0.9:
            raise ValueError(f"validation + test is {self.validation + self.test:g}: leave at least 0.1 to train on")
        return self
