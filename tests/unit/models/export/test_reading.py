"""How a model of text reads a text of any length."""

import math
from pathlib import Path

import pytest

from models.export.predict import session
from models.export.reading import read
from tests.served_models import write_served


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("text")
    characters = write_served(folder, "language").characters
    running = session(Path(folder) / "model.onnx")
    return lambda text: read(running, text, characters)


def test_the_likeliest_next_character_with_its_probability(reader) -> None:
    character, probability, _ = reader("ab")
    assert character == "c"
    assert probability == pytest.approx(math.exp(4) / (math.exp(4) + 5), abs=1e-6)


def test_what_the_model_expects_costs_fewer_bits(reader) -> None:
    assert reader("\n abc")[2] < reader("cba \n")[2]


def test_a_text_longer_than_a_window_is_read_whole(reader) -> None:
    assert reader("abc" * 9)[0] == reader("abc")[0]
    assert reader("abc" * 9)[2] == pytest.approx(reader("abc" * 8)[2], rel=0.2)


def test_no_text_has_a_next_character_and_no_bits(reader) -> None:
    character, _, bits = reader("")
    assert character == " "
    assert math.isnan(bits)
