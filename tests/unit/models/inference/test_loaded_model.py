"""A version, loaded and ready to answer."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.feeds import feeds
from models.errors import StoreError
from models.inference.loaded_model import LoadedModel, input_schema
from models.inference.names import scores_of
from models.inference.one_column import ImageSchema, TextSchema
from models.inference.portable import ROWS_A_PASS
from models.inference.predict import predict
from models.inference.table import TableSchema
from models.inference.windows import SeriesSchema
from models.inputs.categorical.record import CategoricalInput
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
    answer = ready.answer(ready.schema.from_records([record]).feed)
    (told,) = ready.records(answer)
    assert {name: told[name] for name in said} == said
    assert (answer.project, answer.version, answer.num_rows) == ("tiny", "3", 1)


def test_an_answer_says_what_one_of_its_rows_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = served(tmp_path, "binary")
    feed = ready.schema.from_columns({"x": [1.0] * 4, "c": ["u"] * 4}).feed
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
    answer = ready.answer(ready.schema.from_tensors(blank).feed)
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
        ("binary", TableSchema, ["x"]),
        ("image", ImageSchema, []),
        ("series", SeriesSchema, ["x", "y"]),
        ("language", TextSchema, []),
    ],
)
def test_each_kind_has_its_own(task: str, kind: type, numbers: list[str]) -> None:
    schema = input_schema(preparation_of(task))
    assert isinstance(schema, kind)
    assert schema.numbers == numbers


@pytest.fixture
def made(exported_job):
    """A function that gives a finished job, its exported model, and the exported file."""

    def make(net, kind, task, **arguments):
        job, answer = exported_job(net, kind, task, **arguments)
        path = Path(answer["path"])
        return job, LoadedModel("tiny", "7", path.parent), path

    return make


@pytest.mark.parametrize(
    ("net", "kind", "task", "arguments"),
    [
        ("mlp", "table", "binary", {"hidden": 8}),
        ("trees", "table", "multiclass", {}),
        ("trees", "table", "regression", {}),
        ("resnet", "image", "multiclass", {"width": 4}),
    ],
)
def test_rows_are_scored_as_prepared_rows_are(made, net, kind, task, arguments):
    job, model, path = made(net, kind, task, **arguments)
    rows = pq.read_table(job.prepared / "rows.parquet", filters=[("__split", "==", 2)])
    answer = model.answer(model.schema.from_arrow(rows))
    expected = predict(path, feeds(job.prepared, "test"), model.preparation)
    np.testing.assert_allclose(scores_of(answer.outputs, task), expected, atol=1e-6)
    shown = model.columns(answer)
    assert answer.num_rows == rows.num_rows
    classes = model.preparation.target.classes or []
    names = ["label", *(f"probability_{name}" for name in classes)] if classes else ["prediction"]
    assert list(shown) == names
    if classes:
        likeliest = np.stack([shown[name] for name in names[1:]], axis=1).argmax(axis=1)
        assert shown["label"].tolist() == [classes[one] for one in likeliest]


def test_windows_of_a_series_are_scored_as_prepared_ones_are(made):
    job, model, path = made("lstm", "series", "regression", hidden=8)
    rows = pq.read_table(job.prepared / "rows.parquet")
    assert model.preparation.window is not None
    ends = range(model.preparation.window.length - 1, rows.num_rows)
    scores = dict(zip(ends, model.answer(model.schema.from_arrow(rows)).outputs["prediction"], strict=True))
    targets = np.flatnonzero(rows.column("__split").to_numpy() == 2)
    expected = predict(path, feeds(job.prepared, "test"), model.preparation)
    horizon = model.preparation.window.last_horizon
    np.testing.assert_allclose([scores[int(one) - horizon] for one in targets], expected, atol=1e-6)
    assert max(scores) == rows.num_rows - 1  # beyond what is known: the forecast


def test_texts_are_read(made):
    _, model, _ = made("lstm", "text", "language", hidden=8)
    answer = model.answer(model.schema.from_arrow(pa.table({"text": ["und so", None]})))
    assert list(model.columns(answer)) == ["next_character", "probability", "bits_per_char"]
    assert 0 < scores_of(answer.outputs, "language")[0] < 20


def test_many_rows_run_in_passes_and_come_in_order(made):
    _, model, _ = made("mlp", "table", "binary", hidden=8)
    count = 2 * ROWS_A_PASS + 3
    rows = pa.table(
        {part.name: np.linspace(-2, 2, count) for part in model.preparation.numeric}
        | {part.name: ["1"] * count for part in model.preparation.of(CategoricalInput)}
    )
    whole, tail = (
        scores_of(model.answer(model.schema.from_arrow(part)).outputs, "binary")
        for part in (rows, rows.slice(count - 5))
    )
    assert len(whole) == count
    np.testing.assert_allclose(whole[-5:], tail, atol=1e-7)
