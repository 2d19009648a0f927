"""A loaded version answers what a person types into the form of its page: the rows are read as a server reads them."""

from __future__ import annotations

import base64
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference.explain import explained_output
from models.inference.input_schema import InputRows, InputSchema
from models.inference.loaded_model import LoadedModel
from models.inference.occlusion import OccludedRows, without_patches, without_words
from models.inference.portable import LABEL, NEXT_CHARACTER, PREDICTION, PROBABILITY
from models.inference.predict import Feed
from models.inference.row_values import number_cells, number_text
from models.inputs.image.pictures import FORMATS, PictureShape, is_file, levels_of
from models.inputs.record import Form
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Image
from models.serving.mlflow_scoring import columns_of_cells, scoring_of_json
from models.serving.playground_form import (
    MOST_ROWS,
    Control,
    ExplainedRow,
    Occlusion,
    PlaygroundAnswer,
    PlaygroundField,
    PlaygroundForm,
    PlaygroundRequest,
)
from models.sources.delimiter import DECIMAL_COMMA

MOST_LEVELS = 500
MOST_WARNINGS = 20
MOST_S, STRETCH_S = 8.0, 1.0
"""Seconds that explaining may take, of the 20 s of an answer, and about those between two looks at the clock."""
Records = Sequence[Mapping[str, Any]]


def form_of(preparation: Preparation, example: Records) -> PlaygroundForm:
    """Return the form of a version.

    Args:
        preparation: Of the version.
        example: Example rows (`models.export.bundle.example`).
    """
    fields = _FIELDS[preparation.kind](preparation, example)
    return PlaygroundForm(fields=fields, rows=json.dumps(example, ensure_ascii=False, indent=1))


def _columns(preparation: Preparation, example: Records) -> list[PlaygroundField]:
    parts = {part.column: part for part in reversed(preparation.column_inputs)}
    fields = []
    for name, value in example[0].items():
        part, text = parts[name], _text(value)
        plain = _PLAIN[part.form](text)
        levels = [level for level in part.choices if level][:MOST_LEVELS]
        control = _CONTROLS[part.form]
        fields.append(PlaygroundField(name=name, control=control, value=text, plain_value=plain, levels=levels))
    return fields


def _text(value: object) -> str:
    return "" if value is None else number_text(value) if isinstance(value, float) else str(value)


def _picture(preparation: Preparation, _: Records) -> list[PlaygroundField]:
    return [PlaygroundField(name=preparation.required_pixels.image.column, control="file")]


def _writing(preparation: Preparation, example: Records) -> list[PlaygroundField]:
    column = preparation.required_characters.column
    text = str(example[0][column])
    return [PlaygroundField(name=column, control="passage", value=text, plain_value=text)]


_FIELDS: PerDataKind[Callable[[Preparation, Records], list[PlaygroundField]]] = {
    "table": _columns,
    "image": _picture,
    "series": lambda preparation, example: [],
    "text": _writing,
}
"""The fields of one row; a series needs the rows of a window."""
_CONTROLS: dict[Form, Control] = {"number": "decimal", "time": "moment", "category": "choice", "text": "passage"}
_PLAIN: dict[Form, Callable[[str], str]] = {
    "number": lambda text: text,
    "time": lambda text: "",
    "category": lambda text: "",
    "text": lambda text: text,
}
"""A typical value where no rows may be shown: a category and the latest time come from rows, a text is no row's."""


def answer(model: LoadedModel, request: PlaygroundRequest) -> PlaygroundAnswer:
    """Return what a version answers; a mistake in the rows is an answer too, with the words of a server."""
    try:
        rows = _rows(model, request)
        if rows.num_rows > MOST_ROWS:
            raise DataError(f"got {rows.num_rows} rows, expected {MOST_ROWS} at most: `loopline predict` takes a file")
        prediction = model.answer(rows.feed)
        model.check_finite(prediction)
    except DataError as error:
        columns = [*model.schema.columns, *model.schema.keys]
        places = {name: rf"row \d+, column {re.escape(repr(name))}: " for name in columns}
        field = next((name for name, place in places.items() if re.match(place, str(error))), "")
        return PlaygroundAnswer(trouble=str(error), field=field)
    records = [{name: _plain(value) for name, value in record.items()} for record in model.records(prediction)]
    timed = _TimedModel(model, prediction.row_s, time.monotonic() + MOST_S)
    explanation, unexplained = _explained(timed, rows)
    explained = {LABEL, PREDICTION, NEXT_CHARACTER}
    is_explained = len(records) == 1 and not explained.isdisjoint(records[0])  # not of several outputs
    occlusions, late = _occlusions(timed, rows) if is_explained else ([], "")
    return PlaygroundAnswer(
        records=records,
        chances=_chances(records[0]) if len(records) == 1 else {},
        explanation=explanation,
        occlusions=occlusions,
        unexplained="" if occlusions else late or unexplained,
        warnings=_warnings(model.preparation, rows),
        picture=_SHOWN[model.preparation.kind](rows),
    )


def _rows(model: LoadedModel, request: PlaygroundRequest) -> InputRows:
    schema = model.schema
    if request.rows is not None:
        return scoring_of_json(request.rows.encode()).rows(schema)
    if request.picture is not None:
        return _of_picture(schema, model.preparation.required_pixels.image, request.picture)
    cells = {name: [cell] for name, cell in request.cells.items()}
    columns = columns_of_cells(cells, schema, na_is_text=schema.columns)
    commas = {name for name, form in schema.forms.items() if form == DECIMAL_COMMA}  # pages write 1.5, and take 1,5 too
    read = {name: number_cells(values) if name in commas else values for name, values in columns.items()}
    return schema.from_columns(read)


def _of_picture(schema: InputSchema, image: Image, encoded: str) -> InputRows:
    """Return the row of a file of a picture; of a model that takes plain levels it must have their height and width."""
    content = base64.b64decode(encoded)
    if not content:
        raise DataError(f"row 1, column {image.column!r}: got no file, expected a picture: choose one")
    if not is_file(content) and (image.resize or len(content) != image.height * image.width * image.channels):
        raise DataError(
            f"row 1, column {image.column!r}: got {len(content)} bytes that are no picture, "
            "expected a file of PNG, JPEG, WebP or GIF: choose another"
        )
    if image.resize is None and is_file(content) and image.channels in (1, 3):
        encoded = base64.b64encode(_exact(content, image).tobytes()).decode()
    return schema.from_columns({image.column: [encoded]})


def _exact(content: bytes, image: Image) -> np.ndarray:
    """Return the levels of a file of a picture that has the height and width of the model's pictures."""
    where = f"row 1, column {image.column!r}"
    width, height = _size(content) or (image.width, image.height)
    if (width, height) != (image.width, image.height):
        raise DataError(
            f"{where}: got a picture of {width} x {height} pixels, expected {image.width} x {image.height}: "
            "scale it, or train with data.image.resize"
        )
    try:
        return levels_of(content, PictureShape(height, width, image.channels, "stretch", "white"))
    except ValueError as error:
        raise DataError(f"{where}: the picture cannot be used, got {error}: send what is expected") from error


def _size(content: bytes) -> tuple[int, int] | None:
    """Return width and height of a file of a picture once it is upright, by its header; None: it has none."""
    from PIL import ExifTags
    from PIL import Image as Pictures

    try:
        with Pictures.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
            is_turned = picture.getexif().get(ExifTags.Base.Orientation, 1) >= 5
    except Exception:  # noqa: BLE001 - Pillow's readers raise many types; reading the whole file says what is wrong
        return None
    return (height, width) if is_turned else (width, height)


def _plain(value: Any) -> Any:
    return None if value != value else value


def _chances(record: Mapping[str, Any]) -> dict[str, float]:
    start = f"{PROBABILITY}_"
    return {name.removeprefix(start): value for name, value in record.items() if name.startswith(start)}


class _TimedModel(NamedTuple):
    """A model that predicts many rows until a moment of the monotonic clock; `row_s`: what the explained row took."""

    model: LoadedModel
    row_s: float
    until: float

    def outputs(self, feed: Feed) -> Mapping[str, np.ndarray]:
        """Return the outputs, stretch by stretch.

        Raises:
            DataError: They take too long.
        """
        size, num_rows = max(1, int(STRETCH_S / self.row_s)), len(next(iter(feed.values())))
        stretches = []
        for start in range(0, num_rows, size):
            if time.monotonic() > self.until:
                raise DataError(f"to explain this row takes longer than {MOST_S:g} s: try a shorter one")
            rows = {name: values[start : start + size] for name, values in feed.items()}
            stretches.append(_RUNS[self.model.preparation.kind](self.model, rows))
        return {name: np.concatenate([part[name] for part in stretches]) for name in stretches[0]}


def _explained(timed: _TimedModel, rows: InputRows) -> tuple[ExplainedRow | None, str]:
    """Return the explanation of a single row, or why there is none."""
    if rows.num_rows > 1:
        return None, "one row at a time is explained"
    try:
        explainer = timed.model.required_explainer
        explainer.check(rows.num_rows)
        outputs = timed.outputs(explainer.question(rows.feed))
    except DataError as error:
        return None, str(error)
    explanation = explainer.explanations(rows.num_rows, outputs)[0]
    if not np.isfinite([explanation.base, *explanation.contributions.values()]).all():
        return None, "the model finds no number for mixtures of this row with rows of the training data"
    return ExplainedRow.model_validate(explanation.as_json()), ""


def _occlusions(timed: _TimedModel, rows: InputRows) -> tuple[list[Occlusion], str]:
    """Return what parts of the texts or the picture of a single row add, and why some are missing.

    Cost: the model predicts `MOST_PARTS` further rows.
    """
    preparation, occlusions = timed.model.preparation, list[Occlusion]()
    for occluded in _OCCLUDED[preparation.kind](preparation, rows.feed):
        try:
            outputs = timed.outputs(occluded.feed)
        except DataError as error:
            return occlusions, str(error)
        output, values = explained_output(outputs, _CLASSES[preparation.kind](preparation), 0)
        if np.isfinite(values).all():
            changes = (values[0] - values[1:]).tolist()
            occlusions.append(
                Occlusion(column=occluded.column, output=output, value=values[0], parts=occluded.parts, changes=changes)
            )
    return occlusions, ""


def _without_words(preparation: Preparation, feed: Feed) -> Iterable[OccludedRows]:
    return without_words(feed, [part.name for part in preparation.column_inputs if _CONTROLS[part.form] == "passage"])


def _without_last_words(preparation: Preparation, feed: Feed) -> Iterable[OccludedRows]:
    """Yield a text without one of the words that the model reads for the next character: those of its last window."""
    characters = preparation.required_characters
    read = {"text": np.array([str(feed["text"][0])[-2 * characters.length :]], object)}
    return (replace(rows, column=characters.column) for rows in without_words(read, ["text"], characters.length))


_OCCLUDED: PerDataKind[Callable[[Preparation, Feed], Iterable[OccludedRows]]] = {
    "table": _without_words,
    "image": lambda preparation, feed: [
        without_patches(feed["image"], "image", preparation.required_pixels.image.column)
    ],
    "series": lambda preparation, feed: (),
    "text": _without_last_words,
}
"""What is left out."""
_RUNS: PerDataKind[Callable[[LoadedModel, Feed], Mapping[str, np.ndarray]]] = {
    "table": LoadedModel.run_graph,
    "image": LoadedModel.run_graph,
    "series": LoadedModel.run_graph,
    "text": LoadedModel.next_chances,
}
"""What a model predicts, where a prediction has a chance: that of the likeliest character."""
_CLASSES: PerDataKind[Callable[[Preparation], list[str]]] = {
    "table": lambda preparation: preparation.target.class_names,
    "image": lambda preparation: preparation.target.class_names,
    "series": lambda preparation: preparation.target.class_names,
    "text": lambda preparation: preparation.required_characters.names,
}


def _warnings(preparation: Preparation, rows: InputRows) -> list[str]:
    parts = [part for part in preparation.column_inputs if part.name in rows.feed]
    warnings = [
        f"{f'row {number}, ' if rows.num_rows > 1 else ''}{part.name}: {words}"
        for number in range(1, rows.num_rows + 1)
        for part in parts
        if (words := part.warning(rows.feed[part.name][number - 1]))
    ]
    return warnings[:MOST_WARNINGS]


def _png(rows: InputRows) -> str:
    """Return the first picture as the model sees it; of two or more than three channels only the first."""
    from PIL import Image as Pictures

    (levels,) = rows.feed["image"][:1]
    stream = io.BytesIO()
    Pictures.fromarray(levels if levels.shape[-1] == 3 else levels[..., 0]).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


_SHOWN: PerDataKind[Callable[[InputRows], str]] = {
    "table": lambda rows: "",
    "image": _png,
    "series": lambda rows: "",
    "text": lambda rows: "",
}
