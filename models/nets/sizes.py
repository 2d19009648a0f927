"""The sizes of the data: all facts of the data that building a net needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from models.data.preparation import LEAST_VALUE, Preparation, WindowReference
from models.kinds.task import Task
from models.nets.catalogue import reads_words
from models.project_spec.blocks import Kind

WHOLE_NUMBERS = ("categorical", "tokens", "words")
"""The inputs that hold indices, int64; all others are float32."""


COMMON = ("sizes", "kind", "task", "num_outputs")
SIZES_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "table": ("num_numeric", "cardinalities", "num_inputs", "num_words", "vocabularies"),
    "image": ("image", "channels", "height", "width"),
    "series": ("window", "length", "num_features"),
    "text": ("length",),
}
"""The sizes that a user's net may ask for by name, beside `COMMON`."""


class NetSizes(SimpleNamespace):
    """The sizes as a user's net gets them: those of its kind of data; another one is an error that names them."""

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse a size that this kind of data does not have.

        Raises:
            AttributeError: Names the sizes that there are.
        """
        known = ", ".join(sorted(vars(self)))
        raise AttributeError(f"sizes.{name}: data of kind {vars(self).get('kind')} has {known}")


_LEAST_SHARE = 1e-3
"""Least share of the geometric mean that counts as a value: a linear forecast may fall to 0 and below."""
_LOWEST = 4.0
"""Standard deviations below the mean logarithm that count too, where values differ that much."""


class LogScale(NamedTuple):
    """The logarithm of a value in the standardised unit of the input: `log(max(value + offset, least))`."""

    offset: float
    least: float


@dataclass(frozen=True)
class NetReference:
    """A window's reference forecast, and how a value in its unit becomes the standardised target.

    That is `factor * value + shift`; with `log`, for `data.target_scale: log`, `factor * logarithm + shift`.
    """

    forecast: WindowReference
    factor: float
    shift: float
    is_chosen: bool
    """Whether the spec names it, so that the user's own nets have it too."""
    log: LogScale | None = None
    num_horizons: int = 1
    """Forecasts of a window that its weights make, one for each true value."""

    @classmethod
    def of(cls, preparation: Preparation) -> NetReference | None:
        """Return the reference of prepared series; None if they have none."""
        forecast, window, target = preparation.reference, preparation.window, preparation.target
        if forecast is None or window is None:
            return None
        part, is_chosen = preparation.numeric[forecast.column], window.reference != "auto"
        if target.log_offset is None:
            shift = (part.shift - target.shift) / target.scale
            factor = part.scale / target.scale
            return cls(forecast, factor, shift, is_chosen, None, len(target.columns))
        mean = target.shift - math.log(part.scale)
        least = math.exp(mean + min(math.log(_LEAST_SHARE), -_LOWEST * target.scale))
        log = LogScale((part.shift + target.log_offset) / part.scale, max(least, LEAST_VALUE))
        return cls(forecast, 1 / target.scale, -mean / target.scale, is_chosen, log, len(target.columns))


@dataclass(frozen=True)
class Sizes:
    """Widths of a net's inputs and output.

    Attributes:
        num_numeric: Numbers of a table's row: its numeric columns, and what its times become. For a series, features of
            a step.
        cardinalities: Number of indices of each categorical column.
        num_words: Words of a table's row, if the net reads texts word by word.
        vocabularies: Number of indices of words and of their stems; empty without words.
        image: (channels, height, width), for images.
        window: (length, features), for series.
        length: Characters in a window, for text.
        reference: The forecast from a window that a net of the catalogue corrects, for series.
        num_outputs: 1 for binary (a logit) and regression, else the number of classes, or of characters for text.
    """

    kind: Kind
    task: Task
    num_numeric: int = 0
    cardinalities: tuple[int, ...] = ()
    num_words: int = 0
    vocabularies: tuple[int, ...] = ()
    image: tuple[int, int, int] | None = None
    window: tuple[int, int] | None = None
    length: int = 0
    num_outputs: int = 1
    reference: NetReference | None = None

    @classmethod
    def of(cls, preparation: Preparation, net: str = "") -> Sizes:
        """Return the sizes of prepared data, for a net by its resolved name: with words if it reads them."""
        has_words = reads_words(net)
        pixels, window = preparation.pixels, preparation.window
        num_numeric = preparation.num_numeric
        return cls(
            kind=preparation.kind,
            task=preparation.task,
            num_numeric=num_numeric,
            cardinalities=preparation.cardinalities,
            num_words=preparation.num_words if has_words else 0,
            vocabularies=preparation.vocabularies if has_words else (),
            image=(pixels.image.channels, pixels.image.height, pixels.image.width) if pixels else None,
            window=(window.length, num_numeric) if window else None,
            length=preparation.characters.length if preparation.characters else 0,
            num_outputs=preparation.num_outputs,
            reference=NetReference.of(preparation),
        )

    def for_net(self) -> dict[str, Any]:
        """Return the values of `COMMON` and of the kind's own sizes, by the names that a user's net asks for."""
        values: dict[str, Any] = {"kind": self.kind, "task": self.task, "num_outputs": self.num_outputs}
        if self.image is not None:
            channels, height, width = self.image
            values |= {"image": self.image, "channels": channels, "height": height, "width": width}
        elif self.window is not None:
            length, num_features = self.window
            values |= {"window": self.window, "length": length, "num_features": num_features}
        elif self.kind == "text":
            values |= {"length": self.length}
        else:
            num_inputs = self.num_numeric + sum(self.cardinalities)
            values |= {"num_numeric": self.num_numeric, "cardinalities": self.cardinalities, "num_inputs": num_inputs}
            values |= {"num_words": self.num_words, "vocabularies": self.vocabularies}
        return {"sizes": NetSizes(**values, inputs=self.inputs, output=self.output), **values}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The name and the shape, without the batch, of each input; `numeric` and `categorical` may have width 0.

        `words` holds the index of each word and that of its stem: 0 after the last word, 1 for an unknown one.
        """
        if self.kind == "image":
            return {"image": self.image or (0, 0, 0)}
        if self.kind == "series":
            return {"series": self.window or (0, 0)}
        if self.kind == "text":
            return {"tokens": (self.length,)}
        words = {"words": (self.num_words, len(self.vocabularies))} if self.num_words else {}
        return {"numeric": (self.num_numeric,), "categorical": (len(self.cardinalities),), **words}

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of a net's output without the batch: (num_outputs,), for text (length, num_outputs)."""
        return (self.length, self.num_outputs) if self.kind == "text" else (self.num_outputs,)
