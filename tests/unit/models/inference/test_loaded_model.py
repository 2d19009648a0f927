"""A version, loaded and ready to answer."""

import time
from pathlib import Path

import numpy as np
import pytest

from models.errors import StoreError
from models.inference.images import ImageReader
from models.inference.loaded_model import LoadedModel, reader_of
from models.inference.table import TableReader
from models.inference.texts import TextReader
from models.inference.windows import SeriesReader
from tests.served_models import preparation_of, write_served


def served(folder: Path, task: str) -> LoadedModel:
    write_served(folder, task)
    return LoadedModel("tiny", "3", folder)


@pytest.mark.parametrize(
    ("task", "record", "said"),
    [
        ("binary", {"x": 0, "c": "u"}, {"label": "no", "probability_no": 0.5, "probability_yes": 0.5}),
        ("regression", {"x": 2, "c": None}, {"prediction": 2.0}),
        ("image", {"picture": "AAAAAAAA"}, {"label": "no"}),
        ("language", {"line": "ab"}, {"next_character": "c"}),
    ],
)
def test_every_kind_answers_records(
    tmp_path: Path, task: str, record: dict[str, object], said: dict[str, object]
) -> None:
    ready = served(tmp_path, task)
    answer = ready.answer(ready.reader.of_records([record]).feed)
    (told,) = ready.records(answer)
    assert {name: told[name] for name in said} == said
    assert (answer.project, answer.version, answer.num_rows) == ("tiny", "3", 1)


def test_an_answer_says_what_one_of_its_rows_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = served(tmp_path, "binary")
    feed = ready.reader.of_columns({"x": [1.0] * 4, "c": ["u"] * 4}).feed
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert ready.answer(feed).row_s == 0.5


def test_a_text_model_takes_texts_and_not_the_code_points_of_its_graph(tmp_path: Path) -> None:
    ready = served(tmp_path, "language")
    assert [(port.name, port.dtype) for port in ready.inputs] == [("text", "BYTES")]
    assert [port.name for port in ready.outputs] == ["next_character", "probability", "bits_per_char"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "image", "series", "language"])
def test_outputs_are_what_the_ports_say(tmp_path: Path, task: str) -> None:
    ready = served(tmp_path, task)
    blank = {port.name: np.zeros([2 if size == -1 else size for size in port.shape]) for port in ready.inputs}
    if task == "language":
        blank = {"text": np.array(["a", "b"], object)}
    elif task == "image":
        blank = {"image": blank["image"].astype(np.uint8)}
    elif task != "series":
        blank["c"] = np.array(["u", "v"], object)
    answer = ready.answer(ready.reader.of_tensors(blank).feed)
    for port in ready.outputs:
        assert answer.outputs[port.name].shape == tuple(2 if size == -1 else size for size in port.shape)
    assert ready.call_ms > 0


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="preparation cannot be read"):
        LoadedModel("tiny", "3", tmp_path)
    write_served(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(StoreError, match="cannot run it"):
        LoadedModel("tiny", "3", tmp_path)


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
