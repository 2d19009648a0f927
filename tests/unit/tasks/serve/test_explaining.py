"""`?explain=1`: who may ask, for how much, and that the answers add up."""

import asyncio
import time
from pathlib import Path

import pytest

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.errors import DataError
from models.inference.loaded_model import LoadedModel, Prediction
from models.serving.http_errors import RequestError
from tasks.release.settings import ServerSettings
from tasks.serve.answering import PredictResponse
from tasks.serve.batcher import DynamicBatcher
from tasks.serve.explaining import check, explanations, wants_explanations
from tasks.serve.state import WorkerState
from tests.served_models import preparation_of, write_served


def served(folder: Path, task: str = "binary") -> LoadedModel:
    write_served(folder, task)
    return LoadedModel("tiny", "1", folder)


@pytest.mark.parametrize(
    ("query", "asked"), [(b"", False), (b"explain=0", False), (b"explain=1", True), (b"explain=true", True)]
)
def test_it_is_asked_for_in_the_query(query: bytes, asked: bool) -> None:
    assert wants_explanations(query) is asked


def test_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(RequestError, match="got 'perhaps', expected 1 or 0"):
        wants_explanations(b"explain=perhaps")


def test_every_row_is_explained_by_one_further_call(tmp_path: Path) -> None:
    version = served(tmp_path)
    rows = version.schema.from_columns({"x": [3.0, -3.0], "c": ["u", None]})
    check(version, rows)
    calls = []

    class Counted(DynamicBatcher):
        async def answer(self, served: LoadedModel, feed: object, deadline: float) -> Prediction:
            calls.append(deadline - time.monotonic())
            return await super().answer(served, feed, deadline)  # type: ignore[arg-type]

    state = WorkerState.of(ServerSettings(str(tmp_path), ("tiny",)))
    state.engine = Counted()
    found = PredictResponse(version, rows, version.answer(rows.feed), "r", ["r-0", "r-1"])
    told = asyncio.run(explanations(state, found))
    state.engine.close()
    assert len(calls) == 1
    assert [each["of"] for each in told] == ["probability_yes", "probability_no"]
    for each in told:
        assert set(each["contributions"]) == {"x", "c"}
        assert each["contributions"]["c"] == 0.0
        assert each["base"] + sum(each["contributions"].values()) == pytest.approx(each["value"])


@pytest.mark.parametrize("task", ["image", "language"])
def test_images_and_texts_are_not_explained(tmp_path: Path, task: str) -> None:
    version = served(tmp_path, task)
    with pytest.raises(DataError, match="only tables and series are explained"):
        check(version, None)  # type: ignore[arg-type]


def test_several_outputs_are_not_explained(tmp_path: Path) -> None:
    outputs = [OutputColumn(name=name, column=name) for name in ("load", "price")]
    target = TargetEncoding(name="load, price", outputs=outputs)
    write_served(tmp_path, preparation=preparation_of("regression").model_copy(update={"target": target}))
    version = LoadedModel("tiny", "1", tmp_path)
    with pytest.raises(DataError, match="has 2 outputs, and one can be explained: leave"):
        check(version, version.schema.from_columns({"x": [1.0], "c": ["u"]}))


def test_a_version_of_before_says_so(tmp_path: Path) -> None:
    version = served(tmp_path)
    (tmp_path / "background.json").unlink()
    with pytest.raises(DataError, match="keeps no background rows: train again"):
        check(version, version.schema.from_columns({"x": [1.0], "c": ["u"]}))
