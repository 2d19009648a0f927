"""Conversion of text to numbers. Needs numpy alone, so that a server can use it too."""

from __future__ import annotations

import numpy as np


def code_points(text: str) -> np.ndarray:
    """Return the characters' code points, int64 (characters,)."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
