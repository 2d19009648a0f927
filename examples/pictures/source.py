"""1,797 handwritten digits of 8 x 8 grey pixels, from the installed package scikit-learn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from sklearn.datasets import load_digits

WHITEST = 16


def load() -> pa.Table:
    """One row a picture: `picture`, 64 bytes in rows from the top, and `digit`, 0 to 9 as text."""
    digits = load_digits()
    pixels = np.rint(digits.data * (255 / WHITEST)).astype(np.uint8)
    return pa.table(
        {"picture": pa.array([row.tobytes() for row in pixels], pa.binary()), "digit": digits.target.astype(str)}
    )
