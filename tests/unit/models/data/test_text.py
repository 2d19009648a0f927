import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.encode import encode
from models.data.feeds import feeds, slice_values, targets
from models.data.preparation import ROWS_FILE, TextInput
from models.data.text import indices_of, prepare_text, text_of, window_starts, windows_of
from models.errors import DataError
from models.project_spec.blocks import Judge, Spec
from models.project_spec.reserved_columns import SPLIT_COLUMN
from models.sources.code_points import code_points

LENGTH = 16


def spec(**text):
    shape = {"length": LENGTH, **text}
    return Spec.model_validate({"name": "t", "data": {"source": "a.txt", "kind": "text", "text": shape}})


@pytest.fixture
def lines():
    random = np.random.default_rng(0)
    return ["".join(random.choice(list("abcd e"), random.integers(0, 30))) for _ in range(120)]


@pytest.fixture
def book(lines):
    return pa.table({"chapter": [1] * 60 + [2] * 60, "text": [*lines[:-1], "only here: é"]})


def test_splits_are_stretches_of_the_text_in_its_order(book, run_prepare):
    folder, preparation = run_prepare(book, spec())
    codes = pq.read_table(folder / "rows.parquet").column(SPLIT_COLUMN).to_numpy()
    assert (np.diff(codes) >= 0).all()
    texts = [text_of(folder, split, preparation.characters) for split in ("train", "validation", "test")]
    whole = "".join(f"{line}\n" for line in book.column("text").to_pylist())
    assert "".join(texts) == whole
    assert [len(text) / len(whole) for text in texts] == pytest.approx([0.7, 0.15, 0.15], abs=0.02)


def test_the_alphabet_is_that_of_the_training_text(book, run_prepare):
    folder, preparation = run_prepare(book, spec())
    assert preparation.characters.alphabet == "\n abcde"
    assert preparation.num_outputs == 8
    assert preparation.task == "language"
    tokens = encode(folder, "test")["tokens"]
    assert tokens.dtype == np.uint8
    assert tokens[-4:].tolist() == [0, 2, 0, 1], "unseen `:` and `é` share index 0"


def test_no_window_leaves_its_split_and_every_character_is_judged_once(book, run_prepare):
    folder, preparation = run_prepare(book, spec(stride=4))
    for split in ("validation", "test"):
        text = text_of(folder, split, preparation.characters)
        judged = "".join(map(chr, targets(folder, split).ravel()))
        assert judged == text[1 : 1 + len(judged)]
        assert 0 <= len(text) - 1 - len(judged) < LENGTH
    train = encode(folder, "train")
    assert set(np.diff(train["start"])) == {4}
    assert train["start"][-1] + LENGTH < len(train["tokens"])
    assert preparation.rows["train"] == len(train["start"])


def test_a_feed_holds_code_points_and_what_follows(book, run_prepare):
    folder, _ = run_prepare(book, spec())
    fed = np.concatenate([feed["text"] for feed in feeds(folder, "test", batch=2)])
    assert fed.shape[1] == LENGTH + 1
    assert (fed[:, 1:] == targets(folder, "test")).all()


def test_a_model_of_shorter_windows_cannot_be_compared(book, run_prepare):
    folder, preparation = run_prepare(book, spec())
    shorter = preparation.characters.model_copy(update={"length": LENGTH - 1})
    with pytest.raises(DataError, match="reads 15 characters and these windows are of 16"):
        list(feeds(folder, "test", preparation.model_copy(update={"characters": shorter})))


def test_a_window_has_the_slice_of_the_line_it_starts_in(book, run_prepare):
    sliced = spec().model_copy(update={"judge": Judge(slices=["chapter"])})
    folder, preparation = run_prepare(book, sliced)
    values = slice_values(folder, "train", ["chapter"])["chapter"]
    assert len(values) == preparation.rows["train"]
    end = len("".join(f"{line}\n" for line in book.column("text").to_pylist()[:60]))
    assert list(values).count("1") == -(-end // LENGTH)


def test_repeated_lines_stay(run_prepare):
    folder, preparation = run_prepare(pa.table({"text": ["again and again"] * 40}), spec())
    assert sum(len(text_of(folder, split, preparation.characters)) for split in ("train", "validation", "test")) == 640


@pytest.mark.parametrize(
    ("table", "text", "says"),
    [
        ({"text": ["a short line"] * 20}, {"length": 64}, "one window takes 65 characters, but validation has"),
        ({"text": ["x" * 5000]}, {}, r"1 line\(s\), and cuts lie between lines: break long ones"),
        ({"text": [1, 2, 3]}, {}, "got type int64, expected text"),
        ({"line": ["a"] * 20}, {}, "data.text.column: no column 'text'"),
    ],
)
def test_text_that_makes_no_windows_is_refused(table, text, says):
    with pytest.raises(DataError, match=says):
        prepare_text(pa.table(table), spec(**text).data)


@given(st.text(min_size=1), st.text())
def test_indices_name_the_characters(training, other):
    characters = TextInput(column="t", length=2, stride=2, alphabet="".join(sorted(set(training))))
    found = indices_of(code_points(training), characters)
    assert "".join(characters.alphabet[index - 1] for index in found) == training
    unseen = [character not in training for character in other]
    assert list(indices_of(code_points(other), characters) == 0) == unseen


def test_a_large_alphabet_takes_a_wider_type():
    characters = TextInput(column="t", length=2, stride=2, alphabet="".join(map(chr, range(300))))
    assert indices_of(np.array([0, 299, 300]), characters).tolist() == [1, 300, 0]
    assert indices_of(np.array([0]), characters).dtype == np.int16


def test_windows_are_cut_where_they_start():
    characters = TextInput(column="t", length=3, stride=2, alphabet="a")
    assert window_starts(8, characters, "train").tolist() == [0, 2, 4]
    assert window_starts(8, characters, "test").tolist() == [0, 3]
    assert window_starts(3, characters, "test").tolist() == []
    assert windows_of(np.arange(8), np.array([0, 3]), 3).tolist() == [[0, 1, 2, 3], [3, 4, 5, 6]]


def test_rows_that_were_cut_short_are_told_with_the_cure(book, run_prepare):
    """The reader of texts had a filter of its own, which ended in Arrow's error."""
    folder, preparation = run_prepare(book, spec())
    path = folder / ROWS_FILE
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"rows\.parquet: not a whole Parquet file: remove .* and run again"):
        text_of(folder, "train", preparation.characters)
