"""Which reader a kind of model has."""

from __future__ import annotations

from models.data.preparation import Preparation
from models.serving.images import ImageReader
from models.serving.rows import Reader
from models.serving.table import TableReader
from models.serving.texts import TextReader
from models.serving.windows import SeriesReader


def reader_of(preparation: Preparation) -> Reader:
    """Reads what callers send, for a version with this schema."""
    if preparation.pixels is not None:
        return ImageReader(preparation.pixels, preparation.target.name)
    if preparation.characters is not None:
        return TextReader(preparation.characters.column)
    return SeriesReader(preparation) if preparation.kind == "series" else TableReader(preparation)
