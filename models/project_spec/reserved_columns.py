"""Names of the columns that Loopline adds to data and to rows of a report; data may not use them."""

from __future__ import annotations

ROW_COLUMN = "__row"


IDENTITY_COLUMN = "__identity"


SPLIT_COLUMN = "__split"


KEY_COLUMN = "__key"


WEIGHT_COLUMN = "__weight"


SERIES_COLUMN = "__series"


STEP_COLUMN = "__step"


TEXT_PREFIX = "__text:"
"""The features of a text column, as a list in each row."""


FITTED_PREFIX = "__fitted:"
"""A feature of `data.features.fit`."""


SLICE_PREFIX = "__slice:"


POSITION_COLUMN = "__position"
"""A row's number in the table: in the failing rows of checks, and in queries over rows."""


FAILED_COLUMN = "__failed"
"""The checks that a row failed."""


RESERVED = frozenset(
    {
        ROW_COLUMN,
        IDENTITY_COLUMN,
        SPLIT_COLUMN,
        KEY_COLUMN,
        WEIGHT_COLUMN,
        SERIES_COLUMN,
        STEP_COLUMN,
        POSITION_COLUMN,
        FAILED_COLUMN,
    }
)
