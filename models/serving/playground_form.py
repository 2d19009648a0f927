"""The form by which a person tries a version on a row, what it sends, and the answer: plain data for pages.

The server of the pages reads these and imports no numpy; the process that has the version fills them
(`models/serving/playground.py`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from models.frozen_model import FrozenModel
from models.inference.box import Box

Control = Literal["decimal", "moment", "choice", "passage", "file"]
"""What a person fills in: a number, a time, one of some texts, a text of any length, or a file."""
MOST_ROWS = 100
"""Rows of one try."""


class PlaygroundField(FrozenModel):
    """A column that a row has.

    Attributes:
        name: The column.
        control: What a person fills in.
        value: A typical value as text; empty: missing, or not shown.
        plain_value: The value where no rows may be shown.
        levels: The categories that the model knows.
    """

    name: str
    control: Control
    value: str = ""
    plain_value: str = ""
    levels: list[str] = Field(default_factory=list)


class PlaygroundForm(FrozenModel):
    """What a version takes: `fields` of one row, empty where it needs several; `rows`, an example of rows as JSON.

    `trouble`: why the version cannot be tried; empty if it can.
    """

    fields: list[PlaygroundField] = Field(default_factory=list)
    rows: str = ""
    trouble: str = ""

    def without_rows(self) -> PlaygroundForm:
        """Return the form without what single rows of the training data had: categories, times and texts.

        The example rows of a series are numbers that fill gaps.
        """
        fields = [field.model_copy(update={"value": field.plain_value, "levels": []}) for field in self.fields]
        return self.model_copy(update={"fields": fields, "rows": "" if fields else self.rows})


class PlaygroundRequest(FrozenModel):
    """One of: the texts of a row by column, rows as JSON, or a file of a picture in base64."""

    cells: dict[str, str] = Field(default_factory=dict)
    rows: str | None = None
    picture: str | None = None


class ExplainedRow(FrozenModel):
    """What each column contributed: `value` is `base` plus the sum of `contributions`, all in the unit of `of`."""

    of: str
    base: float
    value: float
    contributions: dict[str, float]


class Occlusion(FrozenModel):
    """What each part of a text or a picture adds to an output, which is `value` with all of them.

    Attributes:
        column: The column of the text or the picture.
        output: The column of the prediction.
        value: With all parts, in the unit of the output.
        parts: The words, or the patches.
        changes: For each part `value` less the value without it.
    """

    column: str
    output: str
    value: float
    parts: list[str] | list[Box]
    changes: list[float]


class PlaygroundAnswer(FrozenModel):
    """What a version answers.

    Attributes:
        records: For each row the columns that callers of a server see.
        chances: The probability of each class or label of a single row.
        explanation: Of a single row.
        occlusions: What the words of each text, or the patches of a picture, add; of a single row.
        unexplained: Why there is no explanation.
        warnings: What the model took in place of values that it does not know.
        picture: The picture as the model sees it, a PNG in base64.
        trouble: Why there is no answer, as a server says it.
        field: The column that the trouble is about; empty: no single one.
    """

    records: list[dict[str, Any]] = Field(default_factory=list)
    chances: dict[str, float] = Field(default_factory=dict)
    explanation: ExplainedRow | None = None
    occlusions: list[Occlusion] = Field(default_factory=list)
    unexplained: str = ""
    warnings: list[str] = Field(default_factory=list)
    picture: str = ""
    trouble: str = ""
    field: str = ""
