"""The background rows of explanations: a few training rows, stored with the version."""

from __future__ import annotations

import json
from pathlib import Path

from models.data.feeds import feed_at, spread_positions
from models.data.preparation import Preparation
from models.data.weights import weighing_examples
from models.export.signature import input_example
from models.files import write_text
from models.inference.names import BACKGROUND_FILE
from models.kinds.data_kind import DATA_KINDS

BACKGROUND_ROWS = 16


def write_background(folder: Path, prepared: Path, preparation: Preparation) -> Path | None:
    """Write `background.json` into a folder; None for images and texts, which are not explained by column."""
    if not DATA_KINDS[preparation.kind].has_columns:
        return None
    counted = weighing_examples(prepared, "train", preparation.rows["train"])
    positions = counted[spread_positions(len(counted), BACKGROUND_ROWS)]
    path = folder / BACKGROUND_FILE
    write_text(
        path, json.dumps(input_example(feed_at(prepared, "train", preparation, positions), len(positions))) + "\n"
    )
    return path
