"""Which reader a kind of model has."""

import pytest

from models.serving.images import ImageReader
from models.serving.readers import reader_of
from models.serving.table import TableReader
from models.serving.texts import TextReader
from models.serving.windows import SeriesReader
from tests.served_models import preparation_of


@pytest.mark.parametrize(
    ("task", "kind", "numbers"),
    [
        ("binary", TableReader, ["x"]),
        ("image", ImageReader, []),
        ("series", SeriesReader, ["x", "y"]),
        ("language", TextReader, []),
    ],
)
def test_each_kind_has_its_own(task: str, kind: type, numbers: list[str]) -> None:
    reader = reader_of(preparation_of(task))
    assert isinstance(reader, kind)
    assert reader.numbers == numbers
