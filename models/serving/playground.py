"""A loaded version answers what a person types into the form of its page: the rows are read as a server reads them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference.input_schema import InputRows, InputSchema
from models.inference.loaded_model import LoadedModel
from models.inference.portable import PROBABILITY
from models.inference.row_values import number_text
from models.inputs.image.pictures import FORMATS, PictureShape, is_file, levels_of
from models.inputs.record import Form
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Image
from models.serving.mlflow_scoring import columns_of_cells, scoring_of_json
from models.serving.playground_form import (
    MOST_ROWS,
    Control,
    ExplainedRow,
    PlaygroundAnswer,
    PlaygroundField,
    PlaygroundForm,
    PlaygroundRequest,
)

MOST_LEVELS = 500
MOST_WARNINGS = 20
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
        field = next((name for name in columns if f"column {name!r}:" in str(error)), "")
        return PlaygroundAnswer(trouble=str(error), field=field)
    records = [{name: _plain(value) for name, value in record.items()} for record in model.records(prediction)]
    explanation, unexplained = _explained(model, rows)
    return PlaygroundAnswer(
        records=records,
        chances=_chances(records[0]) if len(records) == 1 else {},
        explanation=explanation,
        unexplained=unexplained,
        warnings=_warnings(model.preparation, rows),
        picture=_SHOWN[model.preparation.kind](rows),
    )


def _rows(model: LoadedModel, request: PlaygroundRequest) -> InputRows:
    schema = model.schema
    if request.rows is not None:
        return scoring_of_json(request.rows.encode()).rows(schema)
    if request.picture is not None:
        return _of_picture(schema, model.preparation.required_pixels.image, request.picture)
    return schema.from_columns(columns_of_cells({name: [cell] for name, cell in request.cells.items()}, schema))


def _of_picture(schema: InputSchema, image: Image, encoded: str) -> InputRows:
    """Return the row of a file of a picture; of a model that takes plain levels it must have their height and width."""
    content = base64.b64decode(encoded)
    if not content:
        raise DataError(f"row 1, column {image.column!r}: got no file, expected a picture: choose one")
    if image.resize is None and is_file(content) and image.channels in (1, 3):
        encoded = base64.b64encode(_exact(content, image).tobytes()).decode()
    return schema.from_columns({image.column: [encoded]})


def _exact(content: bytes, image: Image) -> np.ndarray:
    """Return the levels of a file of a picture that has the height and width of the model's pictures."""
    from PIL import Image as Pictures

    where = f"row 1, column {image.column!r}"
    shape = PictureShape(image.height, image.width, image.channels, "stretch", "white")
    try:
        levels = levels_of(content, shape)
        with Pictures.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
    except ValueError as error:
        raise DataError(f"{where}: the picture cannot be used, got {error}: send what is expected") from error
    if (width, height) != (image.width, image.height):
        raise DataError(
            f"{where}: got a picture of {width} x {height} pixels, expected {image.width} x {image.height}: "
            "scale it, or train with data.image.resize"
        )
    return levels


def _plain(value: Any) -> Any:
    return None if value != value else value


def _chances(record: Mapping[str, Any]) -> dict[str, float]:
    start = f"{PROBABILITY}_"
    return {name.removeprefix(start): value for name, value in record.items() if name.startswith(start)}


def _explained(model: LoadedModel, rows: InputRows) -> tuple[ExplainedRow | None, str]:
    """Return the explanation of a single row, or why there is none."""
    if rows.num_rows > 1:
        return None, "one row at a time is explained"
    try:
        explainer = model.required_explainer
        explainer.check(rows.num_rows)
    except DataError as error:
        return None, str(error)
    outputs = model.answer(explainer.question(rows.feed)).outputs
    explanation = explainer.explanations(rows.num_rows, outputs)[0]
    return ExplainedRow.model_validate(explanation.as_json()), ""


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
