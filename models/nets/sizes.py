"""The sizes of the data: all facts of the data that building a net needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from models.data.preparation import Preparation, WindowReference
from models.data.target_encoding import LEAST_VALUE
from models.kinds.data_kind import Kind, PerDataKind
from models.kinds.task import Task
from models.nets.catalogue import reads_words

WHOLE_NUMBERS = ("categorical", "tokens", "words")
"""The inputs that hold indices, int64; all others are float32."""


COMMON = ("sizes", "kind", "task", "num_outputs")
SIZES_OF_KIND: PerDataKind[tuple[str, ...]] = {
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
        names = ", ".join(sorted(vars(self)))
        raise AttributeError(f"sizes.{name}: data of kind {vars(self).get('kind')} has {names}")


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
        smallest = math.exp(mean + min(math.log(_LEAST_SHARE), -_LOWEST * target.scale))
        log = LogScale((part.shift + target.log_offset) / part.scale, max(smallest, LEAST_VALUE))
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
    image: tuple[int, int, int] = (0, 0, 0)
    window: tuple[int, int] = (0, 0)
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
            image=(pixels.image.channels, pixels.image.height, pixels.image.width) if pixels else (0, 0, 0),
            window=(window.length, num_numeric) if window else (0, 0),
            length=preparation.characters.length if preparation.characters else 0,
            num_outputs=preparation.num_outputs,
            reference=NetReference.of(preparation),
        )

    def for_net(self) -> dict[str, Any]:
        """Return the values of `COMMON` and of the kind's own sizes, by the names that a user's net asks for."""
        values: dict[str, Any] = {"kind": self.kind, "task": self.task, "num_outputs": self.num_outputs}
        values |= _OWN[self.kind](self)
        return {"sizes": NetSizes(**values, inputs=self.inputs, output=self.output), **values}

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """The name and the shape, without the batch, of each input; `numeric` and `categorical` may have width 0.

        `words` holds the index of each word and that of its stem: 0 after the last word, 1 for an unknown one.
        """
        return _INPUTS[self.kind](self)

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of a net's output without the batch: (num_outputs,), for text (length, num_outputs)."""
        return _OUTPUT[self.kind](self)


def _own_of_table(sizes: Sizes) -> dict[str, Any]:
    return {
        "num_numeric": sizes.num_numeric,
        "cardinalities": sizes.cardinalities,
        "num_inputs": sizes.num_numeric + sum(sizes.cardinalities),
        "num_words": sizes.num_words,
        "vocabularies": sizes.vocabularies,
    }


def _own_of_image(sizes: Sizes) -> dict[str, Any]:
    channels, height, width = sizes.image
    return {"image": sizes.image, "channels": channels, "height": height, "width": width}


def _own_of_series(sizes: Sizes) -> dict[str, Any]:
    length, num_features = sizes.window
    return {"window": sizes.window, "length": length, "num_features": num_features}


def _own_of_text(sizes: Sizes) -> dict[str, Any]:
    return {"length": sizes.length}


_OWN: PerDataKind[Callable[[Sizes], dict[str, Any]]] = {
    "table": _own_of_table,
    "image": _own_of_image,
    "series": _own_of_series,
    "text": _own_of_text,
}


def _inputs_of_table(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    words = {"words": (sizes.num_words, len(sizes.vocabularies))} if sizes.num_words else {}
    return {"numeric": (sizes.num_numeric,), "categorical": (len(sizes.cardinalities),), **words}


_INPUTS: PerDataKind[Callable[[Sizes], dict[str, tuple[int, ...]]]] = {
    "table": _inputs_of_table,
    "image": lambda sizes: {"image": sizes.image},
    "series": lambda sizes: {"series": sizes.window},
    "text": lambda sizes: {"tokens": (sizes.length,)},
}
_OUTPUT: PerDataKind[Callable[[Sizes], tuple[int, ...]]] = {
    "table": lambda sizes: (sizes.num_outputs,),
    "image": lambda sizes: (sizes.num_outputs,),
    "series": lambda sizes: (sizes.num_outputs,),
    "text": lambda sizes: (sizes.length, sizes.num_outputs),
}
