"""How a model of text reads a text of any length. Needs numpy and ONNX Runtime alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.data.code_points import code_points
from models.data.preparation import Characters
from models.export.names import BITS, LOG_PROBABILITIES

if TYPE_CHECKING:
    import onnxruntime

NEXT_CHARACTER, PROBABILITY, BITS_PER_CHAR = "next_character", "probability", "bits_per_char"


def read(session: onnxruntime.InferenceSession, text: str, characters: Characters) -> tuple[str, float, float]:
    """The likeliest next character, its probability, and the mean bits a character of the text itself cost.

    The text is read as if it followed the end of a line. One longer than a window is read in windows, as the judge
    reads its own. The bits of no text are NaN.
    """
    points = code_points(f"\n{text}")
    bits = [
        session.run([BITS], {"text": points[None, start : start + characters.length + 1]})[0][0]
        for start in range(0, len(points) - 1, characters.length)
    ]
    (chances,) = session.run([LOG_PROBABILITIES], {"text": points[None, -characters.length :]})
    likeliest = int(chances[0, -1, 1:].argmax())
    mean = float(np.concatenate(bits).mean()) if bits else float("nan")
    return characters.alphabet[likeliest], float(np.exp(chances[0, -1, 1 + likeliest])), mean
