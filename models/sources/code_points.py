"""Text as numbers. Needs numpy alone, so that a server has it too."""

from __future__ import annotations

import numpy as np


def code_points(text: str) -> np.ndarray:
    """The characters' code points, int64 (characters,)."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
