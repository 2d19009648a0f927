"""The base of the records of inputs: what a preparation stores of each, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from models.frozen_model import FrozenModel

if TYPE_CHECKING:
    from models.fitted_features.lookup import Lookup
    from models.ngrams.model import NgramModel

Form = Literal["number", "time", "category", "text", "image", "made", "derived"]
"""How a row gives a value: a number, a time, a category or a text in a column of its own, the bytes of an image; or not
at all, for it is made of other columns, or derived from one of them."""
NUMBERS: tuple[Form, ...] = ("number", "time")
"""Forms of the columns that the graph takes as float64."""
TEXTS: tuple[Form, ...] = ("category", "text")
"""Forms of the columns that the graph takes as texts."""
Measure = Literal["value", "second of the day", "second of the week", "characters"]
"""What of a value is counted to monitor it: of times, which only grow, the place in their cycle (the week begins on
Monday); of texts their length."""
COLUMNS: tuple[Form, ...] = (*NUMBERS, *TEXTS, "image")
"""Forms of inputs that have a column of the data."""


def counts_as(value: float, low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """Return in words which end of a range a number outside it counts as; empty for one inside, or a missing one."""
    end = low if low is not None and value < low else high if high is not None and value > high else None
    return "" if end is None else f"{text(value)} lies beyond what training has seen: it counts as {text(end)}"


class InputRecord(FrozenModel):
    """An input of the model. Its kind says how it is learnt and encoded, its form how rows give its values.

    Attributes:
        PLURAL: What messages call several of them.
        IS_SCORED: Whether its numbers are scores of the target already, which leave a search little to tune.
        kind: Key of `models.inputs.records.RECORDS`.
        form: What stages that read values of rows ask; they know no kinds.
        name: The input's name; usually that of its column.
    """

    PLURAL: ClassVar[str]
    IS_SCORED: ClassVar[bool] = False
    kind: str
    form: Form
    name: str

    @property
    def column(self) -> str:
        """The column of the data that it is made of."""
        return self.name

    @property
    def width(self) -> int:
        """Number of columns of the tensor `numeric` that it becomes."""
        return 0

    @classmethod
    def owners(cls, parts: Sequence[Self]) -> list[str]:
        """Return the name of the input behind each column of `numeric` that inputs of this kind become, in order."""
        return [part.name for part in parts for _ in range(part.width)]

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of indices of each column of the tensor `categorical` that it becomes."""
        return ()

    @property
    def axis(self) -> int | None:
        """Length of an axis of its own for these columns; None if it is one number, which has none."""
        return self.width

    @property
    def measure(self) -> Measure:
        """What of a value is monitored."""
        return "value"

    @property
    def summary(self) -> str:
        """What the model knows of it, in a few words."""
        return f"{self.width} numbers"

    @property
    def choices(self) -> list[str]:
        """The categories that the model knows."""
        return []

    def warning(self, value: Any) -> str:
        """Return in words what the model takes in place of a value, as the graph gets it; empty: the value itself."""
        del value
        return ""


class CategoryRecord(InputRecord):
    """An input whose rows give a category: text, compared as it is written.

    `dtype` is the type of the raw column (integers lose a trailing `.0`).
    """

    form: Literal["category"] = "category"
    categories: list[str]
    dtype: Literal["string", "integer", "boolean", "time"] = "string"

    @property
    def summary(self) -> str:
        """The number of its categories."""
        return f"{len(self.categories)} categories"

    @property
    def choices(self) -> list[str]:
        """The categories that the model knows."""
        return self.categories

    def warning(self, value: Any) -> str:
        """Return that a category is none that the model knows."""
        is_unknown = value and value not in self.categories
        return f"{value[:40]!r} is no category that the model knows: it counts as unknown" if is_unknown else ""


class TextRecord(InputRecord):
    """An input whose rows give a text; a missing one is empty."""

    form: Literal["text"] = "text"

    @property
    def measure(self) -> Measure:
        """The length of the text."""
        return "characters"


class SingleNumber(InputRecord):
    """An input that becomes one number."""

    @property
    def width(self) -> int:
        """One column of the tensor `numeric`."""
        return 1

    @property
    def axis(self) -> int | None:
        """A single number has none."""
        return None


class DerivedInput(SingleNumber):
    """An input that stands beside that of its column, and is made of the same values: one number."""

    form: Form = "derived"
    of: str
    rises: ClassVar[bool]
    """Whether it rises with the values of its column."""

    @property
    def column(self) -> str:
        """The column whose values it is made of."""
        return self.of


@dataclass
class LearntFiles:
    """What was learnt beside the records and is stored in files of its own, but for the lookups.

    Attributes:
        ngrams: The n-gram model of each column of texts.
        lookups: What `data.features.fit` learnt by category.
        transform: The ONNX graph of `data.features.transform`; empty: none.
    """

    ngrams: dict[str, NgramModel] = field(default_factory=dict)
    lookups: list[Lookup] = field(default_factory=list)
    transform: bytes = b""
