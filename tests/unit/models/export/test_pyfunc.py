"""What MLflow's `pyfunc` gives for a registered version's folder."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from models.data.code_points import code_points
from models.data.preparation import Preparation
from models.data.text import window_starts, windows_of
from models.export.export import export
from models.export.predict import predict
from models.export.pyfunc import _load_pyfunc
from models.training.job import Job


@pytest.fixture
def folder(finished_job: Callable[..., Job], tmp_path: Path) -> Path:
    job = finished_job("mlp", task="multiclass")
    export(job.model_dump(mode="json"), str(tmp_path), {})
    return tmp_path


def rows_of(folder: Path) -> pd.DataFrame:
    preparation = Preparation.load(folder)
    columns: dict[str, list[object]] = {part.name: [0.5, None] for part in preparation.numeric}
    columns |= {part.name: [part.categories[0], None] for part in preparation.categorical}
    return pd.DataFrame(columns)


def test_rows_in_give_a_label_and_a_column_a_class(folder: Path) -> None:
    found = _load_pyfunc(str(folder / "model.onnx")).predict(rows_of(folder))
    classes = Preparation.load(folder).target.classes or []
    assert list(found.columns) == ["label", *(f"probability_{name}" for name in classes)]
    assert found.filter(like="probability_").sum(axis=1).to_numpy() == pytest.approx(1.0, abs=1e-6)
    assert set(found["label"]) <= set(classes)


def test_missing_text_and_numbers_count_as_missing_however_they_are_written(folder: Path) -> None:
    predictor = _load_pyfunc(str(folder))
    given = rows_of(folder)
    arrays = {name: given[name].to_numpy(dtype=object) for name in given}
    pd.testing.assert_frame_equal(predictor.predict(given), predictor.predict(arrays))


@pytest.fixture
def text_folder(finished_job: Callable[..., Job], tmp_path: Path) -> Path:
    job = finished_job("decoder", "text", "language", width=16, layers=1, heads=2)
    export(job.model_dump(mode="json"), str(tmp_path), {})
    return tmp_path


def test_texts_of_any_length_are_read(text_folder: Path) -> None:
    alphabet = Preparation.load(text_folder).characters.alphabet
    given = pd.DataFrame({"text": ["", "u", "und so weiter " * 9, None]})
    found = _load_pyfunc(str(text_folder)).predict(given)
    assert list(found.columns) == ["next_character", "probability", "bits_per_char"]
    assert set(found["next_character"]) <= set(alphabet)
    assert found["probability"].between(0, 1).all()
    assert found["bits_per_char"].isna().tolist() == [True, False, False, True]


def test_a_long_text_costs_what_its_windows_cost(text_folder: Path) -> None:
    preparation = Preparation.load(text_folder)
    text = ("so weiter und Zürich " * 3)[: 4 * preparation.characters.length]
    points = code_points("\n" + text)
    starts = window_starts(len(points), preparation.characters, "test")
    windows = windows_of(points, starts, preparation.characters.length)
    bits = predict(text_folder / "model.onnx", [{"text": windows}], preparation)
    found = _load_pyfunc(str(text_folder)).predict({"text": [text]})
    assert len(starts) == 4
    assert found["bits_per_char"][0] == pytest.approx(bits.mean(), abs=1e-5)
