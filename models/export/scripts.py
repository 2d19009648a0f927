"""The scripts of an edge bundle, one for each kind of model: twenty lines that need onnxruntime and its numpy."""

from __future__ import annotations

from models.project_spec.blocks import Kind
from models.serving.mlflow_scoring import MISSING

_OPEN = """
session = onnxruntime.InferenceSession(str(Path(__file__).with_name("model.onnx")), providers=["CPUExecutionProvider"])
preparation = json.loads(session.get_modelmeta().custom_metadata_map["loopline.preparation"])
""".strip()
_SHOW = """
outputs = dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))
for at in range(len(rows)):
    chances = {f"probability_{name}": float(outputs["probabilities"][at, k]) for k, name in enumerate(classes)}
    print(json.dumps({"label": outputs["label"][at], **chances} if classes else {"prediction": float(outputs["prediction"][at])}))
""".strip()  # noqa: E501 - twenty lines is the promise
_CELLS = f"{{name: None if cell in {MISSING} else cell for name, cell in row.items()}}"
_READ = f"""
with open(sys.argv[1], newline="", encoding="utf-8-sig") as file:
    rows = [{_CELLS} for row in csv.DictReader(file)] if sys.argv[1].lower().endswith(".csv") else list(numpy.atleast_1d(json.load(file)))
def number(value):
    return float("nan" if value is None else {{"": "nan", "true": 1, "false": 0}}.get(str(value).strip().lower(), value))
""".strip()  # noqa: E501 - twenty lines is the promise

_TABLE = f"""
# Predict rows of a CSV or JSON file: python predict.py rows.csv
import csv, json, re, sys, numpy, onnxruntime
from pathlib import Path
{_OPEN}
classes, kinds = preparation["target"]["classes"] or [], {{c["name"]: c["dtype"] for c in preparation["categorical"]}}
{_READ}
def word(value, kind):
    value = "" if value is None else int(value) if isinstance(value, float) and value.is_integer() else value
    text = str(value).lower() if kind == "boolean" or isinstance(value, bool) else str(value)
    return text.partition(".")[0] if kind == "integer" and re.fullmatch(r"-?\\d+\\.0+", text) else text
feed = {{name: numpy.array([word(row[name], kind) for row in rows], object) for name, kind in kinds.items()}}
feed |= {{part["name"]: numpy.array([number(row[part["name"]]) for row in rows]) for part in preparation["numeric"]}}
{_SHOW}
"""

_SERIES = f"""
# Predict from the last steps of a CSV or JSON file, oldest first: python predict.py steps.csv
import csv, json, sys, numpy, onnxruntime
from pathlib import Path
{_OPEN}
classes, names = preparation["target"]["classes"] or [], [part["name"] for part in preparation["numeric"]]
{_READ}
steps = rows[-preparation["window"]["length"]:]
if len(steps) < preparation["window"]["length"]:
    sys.exit(f"got {{len(steps)}} steps, expected {{preparation['window']['length']}} or more")
values = [[number(step[name]) for name in names] for step in steps]
feed, rows = {{"series": numpy.array([values])}}, [steps]
{_SHOW}
"""

_IMAGE = f"""
# Predict images of a JSON file, each base64 of its bytes (height, width, channel): python predict.py images.json
import base64, json, sys
from pathlib import Path
import numpy, onnxruntime
{_OPEN}
classes, column = preparation["target"]["classes"] or [], preparation["pixels"]["image"]["column"]
rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
rows = rows if isinstance(rows, list) else [rows]
shape = session.get_inputs()[0].shape[1:]
images = [numpy.frombuffer(base64.b64decode(row[column]), numpy.uint8).reshape(shape) for row in rows]
feed = {{"image": numpy.stack(images)}}
{_SHOW}
"""

_TEXT = f"""
# The likeliest next character of a JSON file's texts, and what each text cost: python predict.py texts.json
import json, sys
from pathlib import Path
import numpy, onnxruntime
{_OPEN}
characters = preparation["characters"]
rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
for row in rows if isinstance(rows, list) else [rows]:
    points = numpy.array([ord(each) for each in "\\n" + (row[characters["column"]] or "")], numpy.int64)[None]
    length, bits = characters["length"], []
    for start in range(0, points.shape[1] - 1, length):
        bits += session.run(["bits"], {{"text": points[:, start : start + length + 1]}})[0][0].tolist()
    chances = numpy.exp(session.run(["log_probabilities"], {{"text": points[:, -length:]}})[0][0, -1, 1:])
    summary = {{"next_character": characters["alphabet"][chances.argmax()], "probability": float(chances.max())}}
    print(json.dumps({{**summary, "bits_per_char": sum(bits) / len(bits) if bits else None}}, ensure_ascii=False))
"""

SCRIPTS: dict[Kind, str] = {
    "table": _TABLE.lstrip(),
    "series": _SERIES.lstrip(),
    "image": _IMAGE.lstrip(),
    "text": _TEXT.lstrip(),
}
