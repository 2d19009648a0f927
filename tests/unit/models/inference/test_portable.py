"""What MLflow's `pyfunc` gives for a registered version's folder."""

import ast
import base64
import io
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pandas as pd
import pytest
from PIL import Image as Pillow

from models.data.preparation import Preparation
from models.data.text import window_starts, windows_of
from models.errors import DataError
from models.export.bundle import portable_code
from models.inference.loaded_model import LoadedModel
from models.inference.portable import (
    PREPARATION_KEY,
    ROW_BYTES_KEY,
    Predictor,
    _load_pyfunc,
    open_session,
    read_texts,
    rows_a_pass,
    run_in_passes,
)
from models.inference.predict import predict, session
from models.inference.row_values import RowError
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Image
from models.sources.code_points import code_points
from tests.finished_jobs import ExportedJob
from tests.served_models import preparation_of, write_served


@pytest.fixture
def folder(exported_job: ExportedJob) -> Path:
    return Path(exported_job("trees", task="multiclass")[1]["path"]).parent


def rows_of(folder: Path) -> pd.DataFrame:
    preparation = Preparation.load(folder)
    columns: dict[str, list[object]] = {part.name: [0.5, None] for part in preparation.numeric}
    columns |= {part.name: [part.categories[0], None] for part in preparation.of(CategoricalInput)}
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
def text_folder(exported_job: ExportedJob) -> Path:
    return Path(exported_job("lstm", "text", "language", hidden=8)[1]["path"]).parent


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


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("text")
    characters = write_served(folder, "language").characters
    running = session(Path(folder) / "model.onnx")

    def read(text: str) -> tuple[str, float, float]:
        columns = read_texts(running, [text], characters.alphabet, characters.length)
        character, probability, bits = (values[0] for values in columns.values())
        return character, probability, bits

    return read


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


def test_it_imports_nothing_of_ours() -> None:
    """It is loaded where there is no Loopline."""
    files = portable_code("_of_test")
    own = {name.removesuffix(".py") for name in files}
    for text in files.values():
        tree = ast.parse(text)
        names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert names - set(sys.stdlib_module_names) - own <= {
            "collections.abc",
            "numpy",
            "onnxruntime",
            "pandas",
            "PIL",
        }


@pytest.fixture
def known(tmp_path: Path) -> LoadedModel:
    """A model of `y` that takes `x` as known two steps ahead."""
    preparation = preparation_of("series")
    assert preparation.window is not None
    future = NumericInput(name="x_h2", fill=0.0, source="x", ahead=2)
    window = preparation.window.model_copy(update={"horizon": 2, "known_future": ["x"], "series_key": "shop"})
    longer = preparation.with_inputs("numeric", [*preparation.numeric, future])
    write_served(tmp_path, "series", longer.model_copy(update={"window": window}))
    return LoadedModel("tiny", "1", tmp_path)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ([[1, 2, None]] * 3, "window 2: no value of 'x' for the step 2 ahead"),
        ([[1, 2, math.inf]] * 3, "window 2, column 'series': got inf"),
    ],
)
def test_windows_are_refused_as_the_server_does(known: LoadedModel, window: list[list[float]], message: str) -> None:
    predictor, windows = _load_pyfunc(str(known.folder)), np.array([[[1, 2, 3]] * 3, window], np.float64)
    with pytest.raises(DataError, match=message):
        known.schema.from_tensors({"series": windows})
    with pytest.raises(RowError, match=message):
        predictor.predict({"series": windows})
    with pytest.raises(RowError, match=r"got shape \[1, 3, 2\], expected \[rows, 3, 3\]"):
        predictor.predict({"series": windows[:1, :, :2]})
    assert len(predictor.predict({"series": windows[:1]})) == 1


def test_a_file_of_steps_that_does_not_do_names_the_series(known: LoadedModel, tmp_path: Path) -> None:
    predictor, path = _load_pyfunc(str(known.folder)), tmp_path / "steps.csv"
    past, future = "shop,x,y\n" + "a,1,5\n" * 3, "a,2,\na,3,\n"
    path.write_text(past + future)
    assert len(predictor.records(path)) == 1
    path.write_text(past + "a,2,\na,,\n")
    with pytest.raises(RowError, match="the last window of 'a': no value of 'x' for the step 2 ahead"):
        predictor.records(path)
    path.write_text(past + future + "b,1,5\n" * 3 + "b,2,5\nb,3,5\n")
    with pytest.raises(RowError, match=r"the last 2 steps of 'b' have a 'y', .* give the 2 steps after the window"):
        predictor.records(path)


@pytest.mark.parametrize(
    ("metadata", "most"),
    [({}, 1024), ({ROW_BYTES_KEY: "0"}, 1024), ({ROW_BYTES_KEY: "200000"}, 83), ({ROW_BYTES_KEY: str(1 << 30)}, 1)],
)
def test_the_more_a_row_needs_the_fewer_rows_are_in_a_pass(metadata, most):
    class Session:
        def __init__(self):
            self.sizes = []

        def get_modelmeta(self):
            return SimpleNamespace(custom_metadata_map=metadata)

        def run(self, names, feed):
            self.sizes.append(len(feed["x"]))
            return [feed["x"] + 1 for _ in names]

    session, values = Session(), np.arange(2 * most + 1)
    (outputs,) = run_in_passes(session, ["y"], {"x": values}, rows_a_pass(session))
    assert session.sizes == [most, most, 1]
    assert (outputs == values + 1).all()


@pytest.mark.parametrize("task", ["binary", "image"])
def test_models_from_before_version_2_of_the_preparation_are_read(tmp_path: Path, task: str) -> None:
    """An edge bundle of an old version joins its graph with the modules of today."""
    write_served(tmp_path, task)
    model = onnx.load(tmp_path / "model.onnx")
    metadata = {prop.key: prop.value for prop in model.metadata_props}
    stored = json.loads(metadata[PREPARATION_KEY])
    fields = {"numeric": "numeric", "categorical": "categorical", "datetime": "datetimes", "text": "texts"}
    old = {"version": 1, "pixels": None, **{field: [] for field in fields.values()}}
    for part in stored.pop("inputs"):
        kind = part.pop("kind")
        del part["form"]
        if kind == "image":
            old["pixels"] = {name: value for name, value in part.items() if name != "name"}
        else:
            old[fields[kind]].append(part)
    onnx.helper.set_model_props(model, {**metadata, PREPARATION_KEY: json.dumps({**stored, **old})})
    onnx.save(model, tmp_path / "old.onnx")
    rows = [{"picture": base64.b64encode(bytes(6)).decode()}] if task == "image" else [{"x": 1.0, "c": "u"}] * 2
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    before, now = (Predictor(open_session(tmp_path / f"{name}.onnx")) for name in ("old", "model"))
    assert before.records(tmp_path / "rows.json") == now.records(tmp_path / "rows.json")


def test_pictures_of_any_size_are_read_where_loopline_is_not_installed(tmp_path: Path) -> None:
    image = Image(column="picture", height=2, width=3, channels=1, resize="crop")
    part = {"name": "picture", "form": "image", "image": image.model_dump()}
    preparation = {"kind": "image", "version": 2, "target": {"classes": None}, "inputs": [part], "characters": None}

    class Session:
        """Answers with the levels that it got."""

        def get_modelmeta(self):
            return SimpleNamespace(custom_metadata_map={PREPARATION_KEY: json.dumps(preparation)})

        def get_inputs(self):
            return [SimpleNamespace(shape=["batch", 2, 3, 1])]

        def get_outputs(self):
            return [SimpleNamespace(name="prediction")]

        def run(self, names, feed):
            return [feed["image"].reshape(len(feed["image"]), -1).sum(axis=1).astype(float)]

    stream = io.BytesIO()
    Pillow.new("RGB", (30, 20), (9, 9, 9)).save(stream, "PNG")
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{"picture": base64.b64encode(stream.getvalue()).decode()}]))
    assert Predictor(Session()).records(rows) == [{"prediction": 54.0}]
    rows.write_text(json.dumps([{"picture": base64.b64encode(stream.getvalue()[:40]).decode()}]))
    with pytest.raises(RowError, match="row 1, column 'picture': got 40 bytes that cannot be read"):
        Predictor(Session()).records(rows)
