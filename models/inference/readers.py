"""Which reader a kind of model has."""

from __future__ import annotations

from models.data.preparation import Preparation
from models.inference.images import ImageReader
from models.inference.rows import RowReader
from models.inference.table import TableReader
from models.inference.texts import TextReader
from models.inference.windows import SeriesReader


def reader_of(preparation: Preparation) -> RowReader:
    """Reads what callers send, for a version with this schema."""
    if preparation.pixels is not None:
        return ImageReader(preparation.pixels, preparation.target.name)
    if preparation.characters is not None:
        return TextReader(preparation.characters.column)
    return SeriesReader(preparation) if preparation.kind == "series" else TableReader(preparation)
