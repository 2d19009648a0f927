"""Which reader a kind of model has."""

import pytest

from models.inference.images import ImageReader
from models.inference.readers import reader_of
from models.inference.table import TableReader
from models.inference.texts import TextReader
from models.inference.windows import SeriesReader
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
