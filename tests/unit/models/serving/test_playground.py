"""A version answers what a person typed as a server would: the same prediction, the same words, the explanation."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from models.data.preparation import Preparation
from models.export.bundle import example
from models.inference.loaded_model import LoadedModel
from models.inputs.datetime.record import DatetimeInput
from models.inputs.numeric.record import NumericInput
from models.serving import playground
from models.serving.mlflow_scoring import scoring_of_json
from models.serving.playground import answer, form_of
from models.serving.playground_form import MOST_ROWS, PlaygroundRequest
from tests.served_models import preparation_of, write_served


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    """A version of each kind of data."""
    place = tmp_path_factory.mktemp("served")
    tasks = ("binary", "image", "series", "language")
    for task in tasks:
        write_served(place / task, task)
    return {task: LoadedModel("tiny", "1", place / task) for task in tasks}


def png(width: int, height: int, level: int) -> str:
    stream = io.BytesIO()
    Image.new("L", (width, height), level).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def test_a_typed_row_is_the_row_that_a_server_reads(models: dict[str, LoadedModel]) -> None:
    model = models["binary"]
    found = answer(model, PlaygroundRequest(cells={"x": " 0.25 ", "c": "v"}))
    served = model.records(model.answer(scoring_of_json(b'[{"x": 0.25, "c": "v"}]').rows(model.schema).feed))
    assert found.records == served
    assert found.chances == {name: served[0][f"probability_{name}"] for name in ("no", "yes")}
    why = found.explanation
    assert why is not None
    assert set(why.contributions) == {"x", "c"}
    assert why.base + sum(why.contributions.values()) == pytest.approx(why.value)
    assert why.value == pytest.approx(max(found.chances.values()))


@pytest.mark.parametrize("cell", ["0.25", "0,25"])
def test_a_number_with_a_decimal_comma_may_have_a_point_too_as_pages_write_it(tmp_path: Path, cell: str) -> None:
    write_served(tmp_path, "binary")
    Preparation.load(tmp_path).model_copy(update={"decimal_commas": ["x"]}).save(tmp_path)
    model = LoadedModel("tiny", "1", tmp_path)
    served = model.records(model.answer(scoring_of_json(b'[{"x": 0.25, "c": "v"}]').rows(model.schema).feed))
    assert answer(model, PlaygroundRequest(cells={"x": cell, "c": "v"})).records == served


@pytest.mark.parametrize(
    ("cells", "field", "words"),
    [
        ({"x": "abc", "c": "v"}, "x", "row 1, column 'x': got 'abc', expected a number, or null for missing"),
        ({"x": "1"}, "", "the model takes 'c'"),
        ({"x": "column 'c': ", "c": "v"}, "x", "expected a number"),
    ],
)
def test_a_mistake_has_the_words_of_a_server_and_its_field(
    models: dict[str, LoadedModel], cells: dict[str, str], field: str, words: str
) -> None:
    found = answer(models["binary"], PlaygroundRequest(cells=cells))
    assert (found.field, found.records) == (field, [])
    assert words in found.trouble


def test_values_that_the_model_does_not_know_are_named(models: dict[str, LoadedModel]) -> None:
    assert answer(models["binary"], PlaygroundRequest(cells={"x": "", "c": ""})).warnings == []
    form, body = PlaygroundRequest(cells={"x": "NA", "c": "NA"}), PlaygroundRequest(rows='[{"x": null, "c": "NA"}]')
    warnings = ["c: 'NA' is no category that the model knows: it counts as unknown"]
    assert answer(models["binary"], form).warnings == answer(models["binary"], body).warnings == warnings
    rows = json.dumps([{"x": 1, "c": "v"}, {"x": 1, "c": "new"}])
    assert answer(models["binary"], PlaygroundRequest(rows=rows)).warnings == [
        "row 2, c: 'new' is no category that the model knows: it counts as unknown"
    ]
    number = NumericInput(name="x", fill=0.0, low=-5.0, high=5.0)
    assert (number.warning(6.0), number.warning(-5.0)) == ("6 lies beyond what training has seen: it counts as 5", "")
    day = DatetimeInput(name="t", cycles=[], trend=True, low=0.0, high=86400.0, shift=0.0, scale=1.0)
    assert "it counts as 1970-01-01T00:00:00" in day.warning(-1.0)
    assert day.model_copy(update={"trend": False}).warning(-1.0) == ""


def test_several_rows_are_answered_and_too_many_are_not(models: dict[str, LoadedModel]) -> None:
    rows = [{"x": 1.0, "c": "v"}] * MOST_ROWS
    found = answer(models["binary"], PlaygroundRequest(rows=json.dumps(rows)))
    assert (len(found.records), found.explanation, found.chances) == (MOST_ROWS, None, {})
    assert (
        "expected 100 at most" in answer(models["binary"], PlaygroundRequest(rows=json.dumps([*rows, rows[0]]))).trouble
    )
    assert "not JSON" in answer(models["binary"], PlaygroundRequest(rows="")).trouble


def test_a_picture_is_shown_back_as_the_model_sees_it(models: dict[str, LoadedModel]) -> None:
    found = answer(models["image"], PlaygroundRequest(picture=png(3, 2, 200)))
    shown = np.array(Image.open(io.BytesIO(base64.b64decode(found.picture))))
    np.testing.assert_array_equal(shown, np.full((2, 3), 200, np.uint8))
    assert set(found.chances) == {"no", "yes"}
    assert found.unexplained == ""
    for picture, words in ((png(4, 2, 0), "4 x 2 pixels, expected 3 x 2"), ("", "got no file"), ("AAAA", "no picture")):
        refused = answer(models["image"], PlaygroundRequest(picture=picture))
        assert (refused.field, words in refused.trouble) == ("picture", True), refused.trouble


def test_the_patch_that_decides_is_the_one_that_adds(models: dict[str, LoadedModel]) -> None:
    levels = base64.b64encode(bytes([0, 0, 0, 0, 9, 0])).decode()
    (occlusion,) = answer(models["image"], PlaygroundRequest(rows=json.dumps([{"picture": levels}]))).occlusions
    changes = dict(zip(occlusion.parts, occlusion.changes, strict=True))
    assert (occlusion.column, occlusion.output, len(changes)) == ("picture", "probability_no", 6)
    assert min(changes, key=lambda box: changes[box]) == (1, 1, 1, 1), "more light makes it `yes`"
    several = answer(models["image"], PlaygroundRequest(rows=json.dumps([{"picture": levels}] * 2)))
    assert (several.occlusions, several.unexplained) == ([], "one row at a time is explained")


def test_a_text_is_explained_by_the_words_that_the_next_character_is_read_from(models: dict[str, LoadedModel]) -> None:
    found = answer(models["language"], PlaygroundRequest(cells={"line": "aaaa bbbb aa b"}))
    (occlusion,) = found.occlusions
    assert found.records[0]["next_character"] == "c", "c follows the last b"
    assert (occlusion.column, occlusion.output) == ("line", "probability_c")
    assert occlusion.value == pytest.approx(found.records[0]["probability"])
    assert occlusion.parts == ["bbbb", "aa", "b"], "the model reads the last eight characters"
    without = answer(models["language"], PlaygroundRequest(cells={"line": "aaaa bbbb aa "})).records[0]
    assert without["next_character"] == "a", "a follows a blank"
    assert occlusion.changes[:2] == pytest.approx([0, 0])
    assert occlusion.changes[2] > occlusion.value / 2
    blank = answer(models["language"], PlaygroundRequest(cells={"line": "a\n"})).occlusions[0]
    assert blank.output == "probability_' '", "a blank is written as Python writes it"


@pytest.mark.parametrize("task", ["binary", "image", "language"])
def test_what_takes_long_is_explained_in_stretches_and_what_takes_too_long_is_answered_without(
    models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    request = (
        PlaygroundRequest(picture=png(3, 2, 200))
        if task == "image"
        else PlaygroundRequest(cells={"x": "1", "c": "v", "line": "a b c"})
    )
    at_once = answer(models[task], request)
    monkeypatch.setattr(playground, "STRETCH_S", 1e-9)
    assert answer(models[task], request) == at_once
    monkeypatch.setattr(playground, "MOST_S", -1.0)
    late = answer(models[task], request)
    assert (late.records, late.explanation, late.occlusions) == (at_once.records, None, [])
    assert "takes longer" in late.unexplained


def test_a_turned_picture_and_one_of_another_size_are_told_apart_by_their_header(
    models: dict[str, LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("L", (2, 3), 7).save(stream, "PNG", exif=exif)
    turned = base64.b64encode(stream.getvalue()).decode()
    assert answer(models["image"], PlaygroundRequest(picture=turned)).trouble == ""
    monkeypatch.setattr(playground, "levels_of", None)  # a small file may unfold into 80 million pixels
    assert "4 x 2 pixels" in answer(models["image"], PlaygroundRequest(picture=png(4, 2, 0))).trouble


@pytest.mark.parametrize("task", ["binary", "series", "language"])
def test_the_form_of_each_kind_is_answered_as_it_comes(models: dict[str, LoadedModel], task: str) -> None:
    model = models[task]
    form = form_of(model.preparation, example(model.preparation))
    whole = answer(model, PlaygroundRequest(rows=form.rows))
    assert (whole.trouble, len(whole.records)) == ("", 1)
    cells = {field.name: field.value for field in form.fields}
    assert bool(cells) == (task != "series")
    if cells:
        assert answer(model, PlaygroundRequest(cells=cells)).records == whole.records


def test_a_form_without_rows_names_no_category(models: dict[str, LoadedModel]) -> None:
    preparation = preparation_of("binary")
    form = form_of(preparation, example(preparation))
    assert [(field.name, field.value, field.levels) for field in form.fields] == [
        ("x", "0", []),
        ("c", "u", ["u", "v", "w"]),
    ]
    hidden = form.without_rows()
    assert [(field.value, field.levels) for field in hidden.fields] == [("0", []), ("", [])]
    assert hidden.rows == ""
