"""The edge bundle: a served version as a folder that needs onnxruntime and its numpy alone."""

from __future__ import annotations

import base64
import inspect
import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from models.data.preparation import Preparation
from models.inference import portable, row_values
from models.inference.loaded_model import LoadedModel
from models.inference.portable import MODEL_FILE
from models.inputs.image import pictures
from models.inputs.record import Form
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Image
from models.serving.open_api import prediction_schema
from models.sources import delimiter

SCRIPT, SCHEMA, EXAMPLE, README = "predict.py", "schema.json", "example.json", "README.md"
_MODULES = {
    portable: "loopline_model",
    row_values: "loopline_row_values",
    pictures: "loopline_pictures",
    delimiter: "loopline_delimiter",
}
"""The modules that predict, the one that is called first, and their names where Loopline is not installed."""
FILES = (MODEL_FILE, SCRIPT, *(f"{name}.py" for name in _MODULES.values()), SCHEMA, EXAMPLE, README)
_SCRIPT = """# Predict the rows of a CSV or JSON file: python predict.py rows.csv
import json
import sys
from pathlib import Path

from loopline_model import Predictor, open_session

try:
    model = Predictor(open_session(Path(__file__).with_name("model.onnx")))
    for row in model.records(Path(sys.argv[1])):
        print(json.dumps(row, ensure_ascii=False))
except ValueError as error:
    sys.exit(str(error))
"""


def bundle(served: LoadedModel, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a bundle by file name, all except the model.

    Args:
        served: The version.
        facts: Facts for the README, in order.
    """
    preparation = served.preparation
    example_json = json.dumps(example(preparation), ensure_ascii=False, indent=1)
    return {
        SCRIPT: _SCRIPT,
        **portable_code(),
        SCHEMA: json.dumps(schema(served), ensure_ascii=False, indent=1) + "\n",
        EXAMPLE: example_json + "\n",
        README: _readme(served, facts),
    }


def portable_code(suffix: str = "") -> dict[str, str]:
    """Return the texts, by file name, of the modules that predict where Loopline is not installed.

    Args:
        suffix: The end of the modules' names.
    """
    return {f"{name}{suffix}.py": _renamed(inspect.getsource(module), suffix) for module, name in _MODULES.items()}


def _renamed(text: str, suffix: str) -> str:
    for module, name in _MODULES.items():
        text = text.replace(module.__name__, name + suffix)
    return text


def schema(served: LoadedModel) -> dict[str, Any]:
    """Return the JSON Schema of the script's input and output, with the graph's own tensors."""
    record = served.schema.record_schema()
    steps = served.preparation.num_steps
    rows = {"type": "array", "items": {"$ref": "#/$defs/record"}, "minItems": steps}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{served.project} version {served.version}: a file of rows",
        **(rows if steps > 1 else {"anyOf": [rows, {"$ref": "#/$defs/record"}]}),
        "$defs": {"record": record, "prediction": prediction_schema(served)},
        "tensors": {
            "inputs": [{"name": port.name, "dtype": port.dtype, "shape": port.shape} for port in served.graph_inputs],
            "outputs": [{"name": port.name, "dtype": port.dtype, "shape": port.shape} for port in served.graph_outputs],
        },
    }


def example(preparation: Preparation) -> list[dict[str, Any]]:
    """Return example rows for the script: they have typical values and are no rows of the training data."""
    return _ROWS[preparation.kind](preparation)


def _usual_row(preparation: Preparation) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for part in preparation.column_inputs:
        row.setdefault(part.column, _EXAMPLES[part.form](part))
    return row


def _rows_of_series(preparation: Preparation) -> list[dict[str, Any]]:
    row, key = _usual_row(preparation), preparation.required_window.series_key
    row |= {key: "a"} if key else {}
    last = {**row, preparation.target.name: None} if preparation.target.name in row else row
    return [*[row] * (preparation.num_steps - preparation.num_future), *[last] * preparation.num_future]


def _row_of_image(preparation: Preparation) -> list[dict[str, Any]]:
    image = preparation.required_pixels.image
    blank = bytes(image.height * image.width * image.channels)
    return [{image.column: base64.b64encode(blank if image.resize is None else _png(image)).decode()}]


def _png(image: Image) -> bytes:
    """Return a file with a black picture."""
    from PIL import Image as Pillow

    stream = io.BytesIO()
    Pillow.new("L" if image.channels == 1 else "RGB", (image.width, image.height)).save(stream, "PNG")
    return stream.getvalue()


_ROWS: PerDataKind[Callable[[Preparation], list[dict[str, Any]]]] = {
    "table": lambda preparation: [_usual_row(preparation)],
    "image": _row_of_image,
    "series": _rows_of_series,
    "text": lambda preparation: [{preparation.required_characters.column: "Once upon a time"}],
}
_NEEDED: PerDataKind[Callable[[Preparation], str]] = {
    "table": lambda preparation: "onnxruntime",
    "image": lambda preparation: f"onnxruntime{'' if preparation.required_pixels.image.resize is None else ' pillow'}",
    "series": lambda preparation: "onnxruntime",
    "text": lambda preparation: "onnxruntime",
}
"""The packages that the script needs."""
_EXAMPLES: dict[Form, Callable[[Any], Any]] = {
    "number": lambda part: part.fill,
    "time": lambda part: datetime.fromtimestamp(part.high, UTC).date().isoformat(),
    "category": lambda part: part.categories[0] if part.categories else "",
    "text": lambda part: "A text of some words",
}
"""A usual value of an input, by the form in which rows give it."""


def _readme(served: LoadedModel, facts: Mapping[str, str]) -> str:
    lines = "\n".join(f"* {name}: {value}" for name, value in facts.items())
    needed = _NEEDED[served.preparation.kind](served.preparation)
    return f"""# {served.project}, version {served.version}

    pip install {needed}
    python {SCRIPT} {EXAMPLE}

`{SCRIPT}` reads a CSV or JSON file of rows as the server of the model does, by the rules in
`{_MODULES[row_values]}.py`, and prints one prediction a line as JSON. What it reads and prints, and the tensors of the
graph for other languages, stand in `{SCHEMA}`. Preparation of the columns is inside `{MODEL_FILE}`: give them in the
data's own units, null or an empty cell for missing. ONNX Runtime sends telemetry to its maker unless
`ORT_DISABLE_TELEMETRY=1` is set when it is imported: `{_MODULES[portable]}.py` sets it; a program that imports
onnxruntime before sets it itself.

{lines}
"""
