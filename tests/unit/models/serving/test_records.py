"""What is kept of an answered request: as the spec has it, and as batch prediction keeps it."""

import numpy as np
import orjson
import pytest

from models.data.preparation import TextInput
from models.inference.input_schema import InputRows
from models.inference.loaded_model import Prediction
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Image
from models.serving.records import PredictionRecorder, label_record, part_of, sampled
from models.serving.releases import place_of
from tests.served_models import preparation_of

FEED = {"x": np.array([1.5, np.nan]), "c": np.array(["u", ""], object)}


def record(task="binary", outputs=None, extra=None, redacted=(), preparation=None, feed=FEED, numbers=None):
    outputs = outputs or {"probabilities": np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)}
    answer = Prediction("tiny", "3", outputs)
    found = preparation or preparation_of(task)
    rows = InputRows(feed, extra or {}, numbers)
    return orjson.loads(PredictionRecorder(found, redacted).record(["a", "b"], 7, rows, answer))


def test_a_request_to_a_binary_model():
    assert record(extra={"why": ["z", None], "y": ["yes", "no"]}) == {
        "ids": ["a", "b"],
        "at": 7,
        "version": "3",
        "score": [0.75, 0.5],
        "names": ["x"],
        "numbers": [1.5, None],
        "texts": {"c": ["u", ""]},
        "raw": {"why": ["z", None]},
    }, "the target is what the caller cannot know: it is not kept"


@pytest.mark.parametrize(
    ("task", "outputs", "said"),
    [
        ("regression", {"prediction": np.array([1.0, 2.5], np.float32)}, {"score": [1.0, 2.5]}),
        ("multiclass", {"probabilities": np.eye(2, 3)}, {"scores": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]}),
    ],
)
def test_scores_of_each_task(task, outputs, said):
    found = record(task, outputs)
    assert {name: found[name] for name in ("score", "scores") if name in found} == said


def test_what_is_redacted_is_nowhere_in_the_record():
    found = record(extra={"name": ["Ada", "Bob"], "why": [1, 2]}, redacted=["c", "name"])
    assert (found["numbers"], found["texts"], found["raw"]) == ([1.5, None], {}, {"why": [1, 2]})
    found = record(redacted=["x"], numbers=FEED["x"][None])
    assert (found["names"], found["numbers"], found["texts"]) == ([], [], {"c": ["u", ""]})


def test_numbers_in_one_array_are_written_as_those_of_many():
    numeric = [NumericInput(name=name, fill=0.0) for name in "xyz"]
    three = preparation_of("regression").with_inputs("numeric", numeric).with_inputs("categorical", [])
    matrix = np.arange(6.0).reshape(3, 2)
    feed, said = dict(zip("xyz", matrix, strict=True)), {"prediction": np.zeros(2)}
    for redacted in ((), ("y",)):
        one = record(preparation=three, feed=feed, outputs=said, redacted=redacted, numbers=matrix)
        assert one == record(preparation=three, feed=feed, outputs=said, redacted=redacted)
    assert (one["names"], one["numbers"]) == (["x", "z"], [0.0, 1.0, 4.0, 5.0])


def test_pictures_are_kept_as_given_and_texts_not_at_all():
    shown = ImageInput(name="digit", image=Image(column="digit", height=2, width=2), mean=[0.0], std=[1.0])
    pictures = preparation_of("binary").with_inputs("image", [shown]).model_copy(update={"kind": "image"})
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    found = record(preparation=pictures, feed={"image": pixels}, extra={"more": [1, 2]})
    assert (found["texts"], found["raw"]) == ({}, {"more": [1, 2]})
    assert found["pictures"] == {"digit": [{"bytes": "AAECAw=="}, {"bytes": "BAUGBw=="}]}
    assert "pictures" not in record(preparation=pictures, feed={"image": pixels}, redacted=["digit"])
    characters = TextInput(column="line", alphabet="ab", length=4, stride=4)
    texts = preparation_of("binary").model_copy(update={"kind": "text", "task": "language", "characters": characters})
    said = {"bits_per_char": np.array([2.5, 1.0])}
    found = record(preparation=texts, feed={"text": np.array(["ab", "ba"], object)}, outputs=said)
    assert (found["raw"], found["texts"], found["score"]) == ({}, {}, [2.5, 1.0])


def test_a_series_is_kept_by_its_last_steps():
    series = preparation_of("regression").model_copy(update={"kind": "series"})
    found = record(
        preparation=series,
        feed={"series": np.zeros((2, 3, 1))},
        outputs={"prediction": np.array([1.0, 2.0])},
        extra={"x": [3, None], "when": ["mon", "tue"]},
    )
    assert (found["texts"], found["raw"]) == ({}, {"x": [3, None], "when": ["mon", "tue"]})


def test_labels():
    assert orjson.loads(label_record([("a", "yes"), ("b", "no")], 5, "Ada")) == {
        "ids": ["a", "b"],
        "labels": ["yes", "no"],
        "at": 5,
        "by": "Ada",
    }


def test_a_share_is_the_same_rows_whoever_draws_and_says_nothing_of_the_canary():
    ids = [f"id-{number}" for number in range(4000)]
    kept = sampled(ids, 0.25)
    assert kept == sampled(ids, 0.25)
    assert 0.22 < len(kept) / len(ids) < 0.28
    of_canary = [row for row in kept if place_of(ids[row]) < 0.25]
    assert 0.2 < len(of_canary) / len(kept) < 0.3
    assert sampled(ids[:3], 1.0) == [0, 1, 2]


def test_an_answer_of_some_rows():
    answer = Prediction("tiny", "1", {"prediction": np.arange(4.0)})
    rows, found = part_of(InputRows({"x": np.arange(4)}, {"why": list("abcd")}), answer, [0, 3])
    assert found.outputs["prediction"].tolist() == [0.0, 3.0]
    assert (rows.feed["x"].tolist(), rows.extra) == ([0, 3], {"why": ["a", "d"]})
