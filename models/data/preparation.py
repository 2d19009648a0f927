"""The preparation schema stored with a model: which inputs it takes and how each becomes numbers.

Every statistic in it comes from the training split alone. `models/data/encode.py` applies it to rows; the
exported graph (`models/export/`) applies the same arithmetic, so that serving needs nothing but the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field, InstanceOf, SerializeAsAny, field_validator, model_validator

from models.data.earlier_preparation import from_version_1
from models.data.target_encoding import OutputColumn, TargetEncoding
from models.files import whole_file
from models.fitted_features.lookup import Lookup
from models.frozen_model import FrozenModel
from models.identity.equal_share import EqualRows
from models.inputs.fitted.record import FittedInput
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.inputs.record import COLUMNS, NUMBERS, TEXTS, InputRecord, LearntFiles
from models.inputs.records import in_order, record_of
from models.inputs.text.record import TextColumn
from models.kinds.task import TASKS, PerLink, Task
from models.metrics.classification import ClassScores, Decision
from models.ngrams.model import NgramModel, load_ngrams, save_ngrams
from models.ngrams.words import FIRST_WORD
from models.project_spec.blocks import Kind
from models.project_spec.window import Window
from models.sources.delimiter import forms_by_column

Record = TypeVar("Record", bound=InputRecord)
ROWS_FILE = "rows.parquet"
PREPARATION_FILE = "preparation.json"
TRANSFORM_FILE = "transform.onnx"
KNOWN_ROWS_FILE = "known_rows.npy"
SPLITS = ("train", "validation", "test")


class ClassHead(FrozenModel):
    """What the exported graph does between the logits of classes and the label.

    Probabilities are the softmax of `slope * logits + offsets`; of two classes, the second is the label if its
    probability is above `threshold`, of more that of the highest `score_weights * probability + score_offsets`. Of
    several labels those are given whose probability is above their own of `thresholds`.
    """

    slope: float = 1.0
    offsets: list[float] = Field(default_factory=list, description="One for each class; empty: none.")
    threshold: float = 0.5
    thresholds: list[float] = Field(default_factory=list, description="One for each label; empty: 0.5.")
    score_weights: list[float] = Field(default_factory=list, description="One for each class; empty: the likeliest.")
    score_offsets: list[float] = Field(default_factory=list, description="One for each class.")

    @property
    def decision(self) -> Decision:
        """How metrics see what the graph decides."""
        if self.score_weights:
            return ClassScores(np.array(self.score_weights), np.array(self.score_offsets))
        return np.array(self.thresholds) if self.thresholds else self.threshold

    @classmethod
    def of(cls, decision: Decision) -> ClassHead:
        """Return the head that decides so, without a calibration."""
        if isinstance(decision, ClassScores):
            return cls(score_weights=decision.weights.tolist(), score_offsets=decision.offsets.tolist())
        if isinstance(decision, float):
            return cls(threshold=decision)
        return cls(thresholds=decision.tolist())


class TextInput(FrozenModel):
    """A text: index 0 is a character unseen in training, index i + 1 is `alphabet[i]`.

    A window is `length` input characters; each of them predicts the next character.
    """

    column: str
    length: int
    stride: int
    alphabet: str = Field(description="The characters of the training text, by code point.")

    @property
    def cardinality(self) -> int:
        """Number of indices, including the index of unseen characters."""
        return len(self.alphabet) + 1

    @property
    def names(self) -> list[str]:
        """The characters as people read them, blanks as Python writes them."""
        return [repr(character) if character.isspace() else character for character in self.alphabet]


class SeriesInput(FrozenModel):
    """The steps of one or many series, as they were in training."""

    time: str = Field(description="The column that gives the order.")
    key: str | None = Field(None, description="The column that names the series of a row; None: one series.")
    frequency: str = Field(description="Distance between two steps (`models/project_spec/frequency.py`).")
    season: int | None = Field(None, description="Steps of the season whose values forecast best in training.")
    num_series: int = 1
    num_gaps: int = Field(0, description="Gaps that no window spans.")
    num_inserted: int = Field(0, description="Missing steps that were inserted without values.")


class WindowReference(FrozenModel):
    """A forecast from the window itself, to which the net adds a correction; in standardised units of the inputs.

    `last`: the last value. `seasonal`: the value `back` steps before the last one. `linear`: the last value plus a
    linear map of the window relative to it, of how each other column moved, and of 1. Each horizon has its own.
    With `is_scaled`, window, errors and correction are divided by the window's root mean square distance from its last
    value.
    Source: `models/data/window_reference.py`.
    """

    kind: Literal["last", "seasonal", "linear"]
    column: int = Field(description="Place of the target among the numeric inputs.")
    back: list[int] = Field(default_factory=list, description="(horizon,), of `seasonal`.")
    weights: list[float] = Field(
        default_factory=list,
        description="Of `linear`: length + 2 x other columns + 1 of each horizon, one after the other.",
    )
    has_companions: bool = Field(
        True, description="Of `linear`: whether it reads the other columns; if not, their weights are 0."
    )
    quantiles: list[float] = Field(
        default_factory=list,
        description="(output,): quantiles of the forecast's errors in training, which make one of several quantiles.",
    )
    penalty: float = Field(0.0, description="Of `linear`: that of the ridge regression.")
    is_scaled: bool = False
    floor: float = Field(description="Least scale of a window.")

    @field_validator("back", mode="before")
    @classmethod
    def _of_one_horizon(cls, back: Any) -> Any:
        """Convert the form of models from before there were several horizons: a number, or nothing."""
        return [] if back is None else [back] if isinstance(back, int) else back


class Preparation(FrozenModel):
    """All steps between a raw record and the tensors of a net."""

    version: Literal[2] = Field(2, description="Of this form; version 1 is read too, and no release before reads 2.")
    kind: Kind
    task: Task
    target: TargetEncoding
    inputs: list[SerializeAsAny[InputRecord]] = Field(
        default_factory=list, description="In the order of the columns of tensors (`models/inputs/records.py`)."
    )
    lookups: list[Lookup] = Field(default_factory=list, description="What `data.features.fit` learnt by category.")
    transform: bytes = Field(
        b"", exclude=True, repr=False, description="ONNX: from numbers and lookups to `fitted`; a file of its own."
    )
    ngrams: dict[str, InstanceOf[NgramModel]] = Field(
        default_factory=dict, exclude=True, repr=False, description="By column; stored in a file of its own."
    )
    na_is_text: list[str] = Field(default_factory=list, description="See the key of the spec's block `data`.")
    dates: dict[str, str] = Field(default_factory=dict, description="See the key of the spec's block `data`.")
    decimal_commas: list[str] = Field(default_factory=list, description="See the key of the spec's block `data`.")
    window: Window | None = None
    series: SeriesInput | None = None
    reference: WindowReference | None = None
    characters: TextInput | None = None
    class_head: ClassHead = Field(
        default_factory=ClassHead, description="Set by the export: calibration and decision threshold."
    )
    quantile_shifts: list[float] = Field(
        default_factory=list,
        description="Set by the export: added to each quantile as the net learnt it, in order; empty: nothing.",
    )
    rows: dict[str, int] = Field(default_factory=dict, description="Examples in train, validation and test.")
    equal_rows: EqualRows | None = Field(
        None,
        exclude=True,
        description="None: no two rows are equal. Not in the file: it looks at the test rows.",
    )
    dropped: dict[str, int] = Field(default_factory=dict, description="Raw rows that are no example, by the reason.")
    left_out: dict[str, str] = Field(default_factory=dict, description="Columns that are no input, and why.")
    extremes: dict[str, str] = Field(
        default_factory=dict,
        description="Columns of numbers with values far from all others, and what was made of them.",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_any_version(cls, stored: Any) -> Any:
        return from_version_1(stored) if isinstance(stored, dict) and stored.get("version") == 1 else stored

    @field_validator("inputs", mode="plain")
    @classmethod
    def _of_their_kinds(cls, inputs: Any) -> list[InputRecord]:
        return in_order(record_of(part) for part in inputs)

    def of(self, record: type[Record]) -> list[Record]:
        """Return the inputs of a class of records: those of one kind, or of all kinds of one form."""
        return [part for part in self.inputs if isinstance(part, record)]

    def with_inputs(self, kind: str, inputs: Iterable[InputRecord]) -> Preparation:
        """Return the same preparation with other inputs of one kind."""
        different_parts = [part for part in self.inputs if part.kind != kind]
        return self.model_copy(update={"inputs": in_order([*different_parts, *inputs])})

    @property
    def column_inputs(self) -> list[InputRecord]:
        """The inputs whose values rows give, each in a column of its own."""
        return [part for part in self.inputs if part.form in (*NUMBERS, *TEXTS)]

    @property
    def forms(self) -> dict[str, str]:
        """How the texts of columns are written, by name."""
        return forms_by_column(self.dates, self.decimal_commas)

    @property
    def numeric(self) -> list[NumericInput]:
        """The columns of numbers: the only inputs of a series."""
        return self.of(NumericInput)

    @property
    def texts(self) -> list[TextColumn]:
        """The columns of texts, whose words are an input of their own."""
        return self.of(TextColumn)

    @property
    def fitted(self) -> list[FittedInput]:
        """The features of `data.features.fit`."""
        return self.of(FittedInput)

    @property
    def pixels(self) -> ImageInput | None:
        """The images; None for other kinds of data."""
        return next(iter(self.of(ImageInput)), None)

    @property
    def season(self) -> int | None:
        """The steps of a series' season; None for series without one, and other kinds of data."""
        return self.series.season if self.series else None

    @property
    def required_window(self) -> Window:
        """The window; only for series, which have one."""
        assert self.window is not None
        return self.window

    @property
    def required_series(self) -> SeriesInput:
        """What is known of the series; only for series, which have it."""
        assert self.series is not None
        return self.series

    @property
    def required_characters(self) -> TextInput:
        """The windows of a text; only for texts, which have them."""
        assert self.characters is not None
        return self.characters

    @property
    def required_pixels(self) -> ImageInput:
        """The images; only for images, which have them."""
        assert self.pixels is not None
        return self.pixels

    @property
    def outputs(self) -> list[OutputColumn]:
        """The outputs of an example, if there are several."""
        return self.target.outputs

    @property
    def number_columns(self) -> list[str]:
        """The columns that the graph takes as float64: numbers, then times in seconds."""
        return [part.name for part in self.inputs if part.form in NUMBERS]

    @property
    def text_columns(self) -> list[str]:
        """The columns that the graph takes as texts."""
        return [part.name for part in self.inputs if part.form in TEXTS]

    @property
    def columns(self) -> list[str]:
        """The input columns of a table or a series, in the order of the graph's inputs."""
        return [*self.number_columns, *self.text_columns]

    @property
    def row_inputs(self) -> dict[str, InputRecord]:
        """The inputs whose values prepared rows hold as rows give them, by column."""
        return {part.name: part for part in self.inputs if part.form in COLUMNS}

    @property
    def files(self) -> LearntFiles:
        """What was learnt beside the records of the inputs."""
        return LearntFiles(self.ngrams, self.lookups, self.transform)

    @property
    def step_columns(self) -> list[str]:
        """The columns of the data that the numeric inputs are made of."""
        return list(dict.fromkeys(part.column for part in self.numeric))

    @property
    def aheads(self) -> list[int]:
        """How many steps after a window those lie of which something is known beforehand, ascending."""
        return sorted({part.ahead for part in self.numeric if part.ahead})

    @property
    def num_future(self) -> int:
        """Steps after a window that a request has too, for what is known of them beforehand."""
        return max(self.aheads, default=0)

    @property
    def num_steps(self) -> int:
        """Fewest records of a request: the steps of a window and those after it; 1 for other kinds."""
        return self.window.length + self.num_future if self.window else 1

    @property
    def num_numeric(self) -> int:
        """Width of the tensor `numeric`: the numbers, the fitted features, then what the times and the texts become."""
        return sum(part.width for part in self.inputs)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of indices of each column of the tensor `categorical`."""
        return tuple(cardinality for part in self.inputs for cardinality in part.cardinalities)

    @property
    def num_words(self) -> int:
        """Words of a row, over all text columns, that a net may read in their order."""
        return sum(part.length for part in self.texts)

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Number of indices of words and of their stems over all text columns; empty without any."""
        if not self.num_words:
            return ()
        words, stems = (sum(len(getattr(part, name)) for part in self.texts) for name in ("words", "stems"))
        return FIRST_WORD + words, FIRST_WORD + stems

    @property
    def num_outputs(self) -> int:
        """Width of the net's output: 1 for binary (a logit) and one number, else the outputs, classes or characters."""
        return _WIDTHS[TASKS[self.task].link](self)

    def save(self, folder: Path) -> None:
        """Write `preparation.json`, and into files beside it the vocabularies and the graph of fitted features."""
        save_ngrams(self.ngrams, folder)
        if self.transform:
            with whole_file(folder / TRANSFORM_FILE) as path:
                path.write_bytes(self.transform)
        (folder / PREPARATION_FILE).write_text(self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load_schema(cls, folder: Path) -> Preparation:
        """Read `preparation.json` alone: columns and target, without vocabularies and fitted features."""
        return cls.model_validate_json((folder / PREPARATION_FILE).read_text())

    @classmethod
    def load(cls, folder: Path) -> Preparation:
        """Read the files of `save`; a registered version has `preparation.json` alone, the rest is in its graph."""
        transform = folder / TRANSFORM_FILE
        files = {
            "ngrams": load_ngrams(folder),
            "transform": transform.read_bytes() if transform.is_file() else b"",
        }
        return cls.load_schema(folder).model_copy(update=files)


def _num_values(preparation: Preparation) -> int:
    return max(1, len(preparation.target.outputs))


def _num_classes(preparation: Preparation) -> int:
    return len(preparation.target.class_names)


def _num_characters(preparation: Preparation) -> int:
    return preparation.characters.cardinality if preparation.characters else 0


_WIDTHS: PerLink[Callable[[Preparation], int]] = {
    "logistic": _num_values,
    "softmax": _num_classes,
    "identity": _num_values,
    "text": _num_characters,
}
