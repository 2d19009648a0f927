"""Names of the columns that Loopline adds to prepared data; data may not use them."""

from __future__ import annotations

ROW_COLUMN = "__row"


IDENTITY_COLUMN = "__identity"


SPLIT_COLUMN = "__split"


KEY_COLUMN = "__key"


SLICE_PREFIX = "__slice:"
