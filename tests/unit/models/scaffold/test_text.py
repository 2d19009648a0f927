import pytest
from ruamel.yaml import YAML

from models.data.prepare import prepare_table
from models.errors import DataError
from models.project_spec.blocks import Spec
from models.scaffold.text import guess_text_spec, is_text
from models.sources.read import read_source

LINE = 'She said: "Is it not {}?"\n'


def read(text):
    return Spec.model_validate(YAML(typ="safe").load(text))


@pytest.mark.parametrize(("lines", "length", "layers"), [(500, 30, 2), (20_000, 128, 4)])
def test_the_guessed_spec_is_valid_and_prepares_the_text(tmp_path, lines, length, layers):
    path = tmp_path / "it is: a book.txt"
    path.write_text("".join(LINE.format(n) for n in range(lines)))
    spec = read(guess_text_spec(path, "book", path.name))
    assert (spec.data.source, spec.data.kind, spec.model.arguments["layers"]) == (path.name, "text", layers)
    _, preparation = prepare_table(read_source(path), spec, tmp_path)
    assert preparation.characters.length == length
    assert preparation.rows["test"] >= 60
    assert preparation.rows["train"] // spec.train.epochs_per_pass > spec.train.batch


def test_a_large_text_gets_short_epochs(tmp_path):
    (tmp_path / "a.txt").write_text("a long line of a long book\n" * 100_000)
    train = read(guess_text_spec(tmp_path, "a", "a")).train
    assert (train.epochs_per_pass, train.epochs) == (4, 8)


def test_a_text_too_short_to_judge_by_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("short\n" * 100)
    with pytest.raises(DataError, match=r"the text has 600 characters, expected at least \d{4}"):
        guess_text_spec(tmp_path / "a.txt", "a", "a.txt")


def test_text_is_told_from_tables(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.csv").write_text("x")
    assert is_text(tmp_path / "a.txt")
    assert is_text(tmp_path)
    assert not is_text(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"")
    assert not is_text(tmp_path)
