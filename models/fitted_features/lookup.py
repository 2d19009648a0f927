"""A number for each category, which the user's `fit` returned; stored with the model and part of its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from models.frozen_model import FrozenModel

if TYPE_CHECKING:
    import pyarrow as pa


class Lookup(FrozenModel):
    """A number for each value of a column of categories; an unseen or missing value has none (NaN)."""

    name: str
    column: str
    keys: list[str]
    values: list[float]

    def find(self, texts: pa.ChunkedArray) -> np.ndarray:
        """Return the numbers of some texts, float64 (row,)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        places = pc.index_in(texts, pa.array(self.keys, pa.string()), skip_nulls=True)
        table = np.array([np.nan, *self.values])
        return np.asarray(table[pc.fill_null(pc.add(places, 1), 0).to_numpy()])
