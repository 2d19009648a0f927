"""The `data` block of the spec: the source, the roles of the columns, and the checks of keys that must go together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from models.kinds.data_kind import Kind as Kind
from models.kinds.task import PerTask, Task
from models.project_spec.block import (
    MAX_OUTPUTS,
    Dates,
    Expectation,
    Fraction,
    Names,
    OwnFunction,
    Reference,
    SpecBlock,
    Whole,
)
from models.project_spec.image_and_text import Image, Text
from models.project_spec.split import Split
from models.project_spec.window import Window

_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_WRITES = re.compile(
    r"\s*(insert|update|delete|merge|replace|truncate|create|drop|alter|grant|revoke|copy|call|do|set|vacuum|attach|begin)\b",
    re.IGNORECASE,
)
_PORT = r"(?:\d+|\$\{\w+\})[/?]"
_PASSWORD = re.compile(
    rf"://[^/@?#]*:(?!{_PORT})(?P<userinfo>[^@]*)@|[?&][\w%]*(?:pass|pwd)\w*=(?P<argument>[^&]*)", re.IGNORECASE
)
_ESCAPED_LETTER = re.compile(r"%([46][1-9a-f]|[57][0-9a])", re.IGNORECASE)
"""A letter as an address may write it, so that it is not seen."""


class SqlQuery(SpecBlock):
    """Rows of a database."""

    sql: Reference = Field(description="One query. It is run in a transaction that can only read.")
    at: Reference = Field(
        description="The database: `${WAREHOUSE_URL}`, a variable with an address of postgresql:, mysql:, mariadb:, "
        "sqlite: or duckdb:, or an address without a password."
    )
    cursor: str | None = Field(
        None,
        description="A column that grows with each change of a row, such as updated_at: only rows from its highest "
        "value on are fetched, and replace those of the same `data.id`.",
    )
    overlap: Whole = Field(
        3600,
        ge=0,
        description="How far behind the cursor's highest value rows are read again, since some are committed late: "
        "seconds of a time, units of a number.",
    )

    @field_validator("sql")
    @classmethod
    def _is_a_query(cls, text: str) -> str:
        if match := _WRITES.match(_COMMENTS.sub(" ", text)):
            raise ValueError(
                f"got a statement that begins with {match[1]}, expected one query, such as select: a source is read"
            )
        return text.rstrip().rstrip(";")

    @field_validator("at")
    @classmethod
    def _has_no_password(cls, text: str) -> str:
        for match in _PASSWORD.finditer(_ESCAPED_LETTER.sub(lambda letter: chr(int(letter[1], 16)), text)):
            secret = match["userinfo"] or match["argument"] or ""
            if secret and not re.fullmatch(r"\$\{\w+\}", secret):
                raise ValueError(
                    "holds a password: write `${NAME}` in its place, or for the whole address, and set the variable"
                )
        if "${" not in text and "://" not in text:
            raise ValueError(
                f"got {text!r}, expected ${{NAME}} or an address such as postgresql://host/name or sqlite:///file.db"
            )
        return text

    @property
    def summary(self) -> str:
        """The query in messages, on one short line."""
        text = str(self)
        return text if len(text) <= 80 else f"{text[:77]}..."

    def __str__(self) -> str:
        """The query on one line."""
        return f"{self.at}: {' '.join(self.sql.split())}"


Source = Annotated[
    Annotated[Reference, Tag("[text]")] | Annotated[SqlQuery, Tag("[query]")],
    Discriminator(lambda value: "[query]" if isinstance(value, (dict, SqlQuery)) else "[text]"),
]
"""What `data.source` may be: a text, or the keys of a query."""
ORDERED = "say `split: {by: time, column: ...}`, or drop it"


class Features(SpecBlock):
    """The input columns of the model, and their kinds."""

    columns: list[str] | None = Field(None, description="Use only these columns. Default: all but the target.")
    drop: list[str] = Field(default_factory=list, description="Never use these columns (leaks, ids).")
    kinds: dict[str, str] = Field(
        default_factory=dict, description="Override the guessed kind of a column. datetime: also seconds since 1970."
    )
    make: Reference | None = Field(None, description="Your function: raw DataFrame -> DataFrame with more columns.")
    fit: OwnFunction | None = Field(
        None,
        description="Your function: the training rows as a DataFrame -> a dict with a pandas Series by category, a "
        "number or an array of each name. The Series become features.",
    )
    transform: OwnFunction | None = Field(
        None,
        description="Your function (columns, state) -> features: torch tensors by name, of what `fit` returned. It "
        "becomes a part of the served graph.",
    )
    impute: Literal["median", "mean", "zero"] = Field(
        "median", description="What stands for a missing number, from the training rows."
    )
    normalise: Literal["standard", "robust", "minmax", "none"] = Field(
        "standard", description="How numbers are scaled, by the training rows."
    )
    max_categories: Whole = Field(1000, ge=2, description="The most common ones keep an index; the rest share one.")


class Data(SpecBlock):
    """The source of the data and the roles of its columns."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"const": "text"}}, "required": ["kind"]},
            "else": {"required": ["target"]},
        }
    )

    source: Source = Field(
        description="A file, a folder of Parquet or of text, an address (`s3:`, `https:`), `pypi:`/`npm:`/`debian:` "
        "package!file, a function, a row of functions (`./warehouse.py:SOURCE`), or a query: `{sql: ..., at: ...}`."
    )
    target: Names = Field(
        description="The column to predict, or a list: several numbers, or the 0/1 columns of a multilabel task; text "
        "needs none.",
    )
    kind: Kind = "table"
    task: Task | None = Field(
        None,
        description="Default: guessed from the target; numbers are a regression if goal.metric is for numbers alone, "
        "such as mae. ranking: the rows of a group, by the target's grades.",
    )
    quantiles: list[Fraction] | None = Field(
        None,
        min_length=2,
        max_length=MAX_OUTPUTS,
        description="Predict these quantiles of a number, such as [0.1, 0.5, 0.9]; of a series at each horizon.",
    )
    split: Split = Field(default_factory=Split)
    features: Features = Field(default_factory=Features)
    expectations: list[Expectation] = Field(default_factory=list)
    target_scale: Literal["auto", "linear", "log"] = Field(
        "auto",
        description="log: a model of numbers learns the logarithm of the target. auto: if all values are positive and "
        "skewed, and goal.metric is mae, mape or pinball.",
    )
    id: str | None = Field(None, description="The id column of the rows, for split and feedback. Never an input.")
    dates: Dates = Field(
        default_factory=dict,
        description="The form of texts or whole numbers that are dates, by column, as of Python's `strptime`: "
        "{sold: '%d.%m.%Y %H:%M'}. They are times from the source on, and in rows to predict; ISO 8601 is read without "
        "it.",
    )
    decimal_commas: list[str] = Field(
        default_factory=list,
        description="Columns of texts that are numbers with a decimal comma, such as 1.234,56: numbers from the source "
        "on, and in rows to predict, where numbers are read too.",
    )
    na_is_text: list[str] = Field(
        default_factory=list,
        description="Columns of a CSV in which NA, null and their like are texts, as the code of Namibia is: only an "
        "empty cell is missing there.",
    )
    weight: str | None = Field(
        None, description="The column with the rows' weights >= 0, for loss and metrics. Never an input; missing is 1."
    )
    deduplicate: bool = Field(False, description="Drop rows that equal an earlier row in every column.")
    newest: Whole | None = Field(
        None, ge=100, description="Train on this many of the newest training rows. For a split by time or position."
    )
    unlabelled: bool = Field(
        False, description="Keep rows without a target, for train.pretrain and train.pseudo_labels."
    )
    show_rows: bool = Field(
        True,
        description="false, for personal data: pages show no rows, and no value that fewer than ten rows have.",
    )
    image: Image | None = None
    window: Window | None = None
    text: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_predicts_itself(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("kind") != "text":
            return values
        text, split = values.get("text") or {}, values.get("split") or {}
        column = text.get("column", "text") if isinstance(text, dict) else text.column
        split = {"by": "position", **split} if isinstance(split, dict) else split
        return {"target": column, **values, "text": text, "split": split}

    @model_validator(mode="after")
    def _kind_has_its_shape(self) -> Data:
        check_data(self)
        return self

    @property
    def targets(self) -> list[str]:
        """The target columns, of which most specs have one."""
        return [self.target] if isinstance(self.target, str) else self.target

    @property
    def deals_rows(self) -> bool:
        """Whether the split deals rows one by one; examples of series and texts are stretches of rows."""
        return self.kind in ("table", "image") and self.split.deals_rows

    @property
    def past_targets(self) -> list[str]:
        """The targets whose past is an input, and which a row may lack: those of series."""
        return self.targets if self.kind == "series" else []

    @property
    def needed_targets(self) -> list[str]:
        """The targets without which a row is no example."""
        return [name for name in self.targets if name not in self.past_targets]

    @property
    def required_window(self) -> Window:
        """The window; only for series, which have one."""
        assert self.window is not None
        return self.window

    @property
    def known_future(self) -> list[str]:
        """The columns of series that are known beforehand."""
        return self.window.known_future if self.window else []

    @property
    def series_keys(self) -> list[str]:
        """The column that names the series of a row, if there are many series."""
        return [self.window.series_key] if self.window and self.window.series_key else []

    @property
    def target_name(self) -> str:
        """The target columns in messages: their names, separated by commas."""
        return ", ".join(self.targets)


def check_data(data: Data) -> None:
    """Refuse keys that contradict each other.

    Raises:
        ValueError: Says which keys, and the cure.
    """
    _check_kind(data)
    if data.newest and (data.split.by not in ("time", "position") or data.kind == "text"):
        raise ValueError(f"newest needs rows in order, but {data.kind} is split by {data.split.by}: {ORDERED}")
    if data.text is not None:
        _check_text(data, data.text)
    _check_targets(data)
    _check_fitted(data)
    if isinstance(data.source, SqlQuery) and data.source.cursor is not None and data.id is None:
        raise ValueError(
            "source.cursor needs `id`, the column by which a changed row replaces its earlier one: name it"
        )
    if data.quantiles is not None:
        _check_quantiles(data, data.quantiles)
    if data.task is not None:
        _TASK_CHECKS[data.task](data)


_SHAPES: dict[str, Kind] = {"image": "image", "window": "series", "text": "text"}
"""The keys with the shape of an example, and the kind that each is for."""


def _check_kind(data: Data) -> None:
    for key, kind in _SHAPES.items():
        if kind != data.kind and getattr(data, key) is not None:
            raise ValueError(f"`data.{key}` is for {kind}, but kind is {data.kind}: say `kind: {kind}`, or remove it")
    if data.kind == "image" and data.image is None:
        raise ValueError("kind image needs `data.image` with height and width")
    if data.kind == "series" and data.window is None:
        raise ValueError("kind series needs `data.window` with length")
    if data.kind == "series" and data.split.by != "time":
        raise ValueError("kind series needs `data.split.by: time` with its column: shuffled series leak")
    if data.kind == "series" and data.task not in (None, "regression", "quantile"):
        raise ValueError(
            f"kind series predicts a number, got task {data.task}: remove `task`, or let the source make each "
            "window a row and say `kind: table`"
        )
    future_columns = data.window.known_future if data.window else []
    for name in future_columns:
        if (
            name in (*data.targets, data.split.column, data.window and data.window.series_key)
            or future_columns.count(name) > 1
        ):
            raise ValueError(
                f"window.known_future: got {name!r}, expected different columns of numbers, none of which is the "
                "target, the times or the series: remove it"
            )
    if data.weight is not None and data.kind not in ("table", "image"):
        raise ValueError(f"weight is for tables and images, but kind is {data.kind}: remove it")


def _check_text(data: Data, text: Text) -> None:
    if data.target != text.column:
        raise ValueError(f"kind text has no target ({data.target!r}): every character is one; remove `target`")
    if data.split.by != "position":
        raise ValueError(f"kind text is split by position, got {data.split.by}: shuffled text leaks; remove `by`")
    if data.task not in (None, "language") or data.features != Features():
        raise ValueError("kind text has no `task` and no `features`: remove them")


def _check_targets(data: Data) -> None:
    """Check the number of targets against task, kind and split."""
    if data.split.column in data.targets and data.split.by not in ("stratified", "position") and data.task != "ranking":
        raise ValueError(
            f"split.column: got {data.split.column}, which is the target: a split by its values holds what is to be "
            "predicted apart; name another column, or say `by: stratified`"
        )
    if isinstance(data.target, str):
        return
    if data.kind not in ("table", "image"):
        raise ValueError(f"kind {data.kind} predicts one column, got {len(data.target)} targets: name one")
    if data.task not in (None, "regression", "multilabel"):
        raise ValueError(
            f"several targets are a regression or a multilabel task, got task {data.task}: remove `task`, or name one "
            "target"
        )
    if data.split.by == "stratified":
        raise ValueError("split by stratified needs one target: say `by: random`, or `by: hash` with a key column")


def _check_fitted(data: Data) -> None:
    features = data.features
    if features.transform is not None and features.fit is None:
        raise ValueError(
            f"features.transform reads what features.fit returns: name a function in `fit`, or say "
            f"{features.transform} in `make`"
        )
    if features.fit is not None and data.kind == "series":
        raise ValueError(
            "features.fit is of tables, but kind is series, whose windows hold no categories to look up: make the "
            "columns in the source, from past rows alone, or let it make each window a row and say `kind: table`"
        )
    if features.fit is not None and data.kind != "table":
        raise ValueError(f"features.fit is of tables, but kind is {data.kind}: remove it")


def _check_quantiles(data: Data, quantiles: list[float]) -> None:
    if data.kind == "text":
        raise ValueError("quantiles are of numbers, but kind text predicts characters: remove `quantiles`")
    if not isinstance(data.target, str):
        raise ValueError(f"quantiles are of one target, got {len(data.target)}: name one, or remove `quantiles`")
    if data.task not in (None, "regression", "quantile"):
        raise ValueError(f"quantiles are of a regression, got task {data.task}: remove `quantiles` or `task`")
    if any(low >= high for low, high in itertools.pairwise(quantiles)):
        raise ValueError(f"quantiles: got {quantiles}, expected ascending ones, such as [0.1, 0.5, 0.9]")
    num = len(data.window.horizons) * len(quantiles) if data.window else 0
    if num > MAX_OUTPUTS:
        raise ValueError(
            f"quantiles: got {num:,} outputs, {len(quantiles)} for each horizon of the window, expected {MAX_OUTPUTS} "
            "at most: name fewer quantiles or fewer horizons"
        )


def _check_ranking(data: Data) -> None:
    """Check that the rows have groups, which are never divided and never an input."""
    if data.kind != "table":
        raise ValueError(f"task ranking is for tables, got kind {data.kind}: say `kind: table`, or remove `task`")
    group = data.split.column
    if data.split.by != "group":
        raise ValueError(
            f"task ranking orders the rows of a group, got a split by {data.split.by}: say `split: {{by: group, "
            "column: query}` with the column that names a row's group"
        )
    if group in data.targets:
        raise ValueError(f"task ranking: {group!r} is both the target and the group: name another `split.column`")
    if group in (*(data.features.columns or ()), *data.features.kinds):
        raise ValueError(
            f"features: {group!r} names the groups of the ranking (split.column), which new groups do not share: take "
            "it out"
        )
    if data.weight is not None:
        raise ValueError(f"weight: a ranking counts every group alike, got {data.weight}: remove it")
    if data.target_scale == "log":
        raise ValueError("target_scale: log is for numbers, but the target of a ranking is a grade: remove it")
    if data.unlabelled:
        raise ValueError("unlabelled: a row without a grade has no place in its group's order: remove it")


def _check_several(data: Data) -> None:
    if isinstance(data.target, str):
        raise ValueError(
            f"task multilabel needs a list of 0/1 columns, got target {data.target}: write `target: [first, "
            "second]`; for one label say `task: binary`"
        )


def _check_levels(data: Data) -> None:
    if data.quantiles is None:
        raise ValueError("task quantile needs the quantiles: write `quantiles: [0.1, 0.5, 0.9]`")


def _check_language(data: Data) -> None:
    if data.kind != "text":
        raise ValueError("task language is for `kind: text`")


def _accept(data: Data) -> None:
    """Accept any data: the checks of targets and kinds say all."""


_TASK_CHECKS: PerTask[Callable[[Data], None]] = {
    "binary": _accept,
    "multiclass": _accept,
    "multilabel": _check_several,
    "regression": _accept,
    "quantile": _check_levels,
    "language": _check_language,
    "ranking": _check_ranking,
}
