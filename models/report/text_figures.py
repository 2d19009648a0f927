"""A figure of a text model's performance; the function returns the bytes of one SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.metrics.metrics import Array
from models.report.style import MUTED, draw, look


def bits_by_position(models: Mapping[str, Array], references: Mapping[str, float | None]) -> bytes:
    """Draw the bits of a character by its position in the window, that is by the number of characters read before it.

    Args:
        models: Bits (window, position) of each model, by its name.
        references: Bits per character of references, by name; drawn as flat lines.
    """

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, (name, bits) in enumerate(models.items()):
            means = np.asarray(bits, dtype=np.float64).mean(axis=0)
            axes.plot(np.arange(1, len(means) + 1), means, label=f"{name} {means.mean():.3f}", **look(name, place))
        for name, value in references.items():
            if value is not None:
                axes.axhline(value, color=MUTED, linewidth=1, linestyle=(0, (1, 3)), label=f"{name} {value:.3f}")
        axes.set(xlabel="place in the window", ylabel="bits a character", ylim=(0, None), xscale="log")
        axes.xaxis.set_major_formatter("{x:g}")  # the log scale's own formatter needs math text, which is off
        axes.legend(loc="upper right")

    return draw(paint)
