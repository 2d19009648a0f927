"""OpenAPI 3.1 document of a server, from the inputs and outputs of its models.

Rules that JSON Schema cannot express (columns of one length, as many ids as rows, the same number of rows in each
tensor) are in the descriptions; the schema then describes a case that is always valid, so that clients generated from
it work.

Source: OpenAPI Specification 3.1.1; Open Inference Protocol, specification/protocol/inference_rest.md.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.data.target_encoding import TargetEncoding
from models.inference.input_schema import FINITE, Schema
from models.inference.loaded_model import LoadedModel
from models.inference.names import answer_columns
from models.inference.portable import LABEL, LABELS
from models.inference.tensors import TensorSpec
from models.kinds.task import PerTask
from models.serving.feedback import LONGEST_BY
from models.serving.mlflow_scoring import LONGEST_ID

OPEN = ("/ping", "/health", "/v2/health/live", "/v2/health/ready")
"""Paths that need no token, because orchestrators call them."""
_JSON = "application/json"
_OCTETS = "application/octet-stream"
_ERRORS = {
    400: "what was sent cannot be read, or is not what the model takes",
    401: "the token is missing or wrong",
    403: "a page of another site sends this",
    404: "no such model, version or address",
    405: "another method is expected: see Allow",
    413: "more than the server takes at once",
    415: "an encoding or type that is not read here",
    429: "too many requests: ask again after Retry-After",
    503: "busy, ending, or no version yet: ask again after Retry-After",
    504: "the deadline passed before there was an answer",
}
_ELEMENTS: dict[str, Schema] = {
    "BYTES": {"type": ["string", "null"]},
    "BOOL": {"type": "boolean"},
    "UINT8": {"type": ["integer", "boolean"], "minimum": 0, "maximum": 255},
}
_DOUBLE = {"minimum": -sys.float_info.max, "maximum": sys.float_info.max}
_NUMBER: Schema = {"type": ["number", "null"], **_DOUBLE}
_NUMBER_OR_DIGITS: Schema = {
    "anyOf": [{"type": "number", **_DOUBLE}, {"type": "string", "pattern": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"}]
}
_TEXT: Schema = {"type": "string"}


def document(models: Mapping[str, LoadedModel], version: str, *, needs_token: bool = False) -> dict[str, Any]:
    """Return the whole document.

    Args:
        models: The live version of each model, by name.
        version: Version of this program.
        needs_token: Whether callers need a token, except on the paths for orchestrators. `/feedback` always needs one.
    """
    paths: dict[str, Any] = dict(_SERVER)
    schemas: dict[str, Schema] = {"Error": _object({"error": _TEXT}, ["error"])}
    for name, served in models.items():
        schemas |= {f"{name}.Record": served.schema.record_schema(), f"{name}.Prediction": prediction_schema(served)}
        paths |= _of_model(name, served)
    if len(models) == 1:
        for end in ("invocations", "feedback"):
            default_path = paths.get(f"/models/{next(iter(models))}/{end}")
            paths |= {f"/{end}": default_path} if default_path else {}
    description: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Loopline", "version": version, "description": "The champions of: " + ", ".join(models)},
        "paths": paths,
        "components": {"schemas": schemas},
    }
    description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path in (path for path in paths if path.endswith("/feedback")):
        paths[path]["post"]["security"] = [{"token": []}]
    if needs_token:
        description["security"] = [{"token": []}]
        description["paths"] |= {path: {"get": {**paths[path]["get"], "security": []}} for path in OPEN}
    return description


def _of_model(name: str, served: LoadedModel) -> dict[str, Any]:
    place = f"/v2/models/{name}"
    version = {"name": "version", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]+$"}}
    infer, metadata, ready = _infer(name, served), _metadata(name), _model_ready(name)
    learns = served.preparation.characters is None  # every character of a text is its own label
    return {
        f"/models/{name}/invocations": _invocations(name, served),
        **({f"/models/{name}/feedback": _feedback(name, served)} if learns else {}),
        f"{place}/infer": infer,
        f"{place}/versions/{{version}}/infer": {**infer, "parameters": [version]},
        place: metadata,
        f"{place}/versions/{{version}}": {**metadata, "parameters": [version]},
        f"{place}/ready": ready,
        f"{place}/versions/{{version}}/ready": {**ready, "parameters": [version]},
    }


def _invocations(name: str, served: LoadedModel) -> dict[str, Any]:
    record = {"$ref": f"#/components/schemas/{name}.Record"}
    records = {"type": "array", "items": record, "minItems": 1}
    params = {"params": {"type": ["object", "null"], "description": "MLflow's: means nothing here."}}
    min_rows = served.preparation.num_steps
    records["minItems"] = min_rows
    wrapped = ["dataframe_records", "instances", "inputs"]
    forms = [_object({form: records, **params}, [form], closed=True) for form in wrapped]
    forms += [
        _object({"dataframe_split": _split(served, min_rows), **params}, ["dataframe_split"], closed=True),
        records,
    ]
    if min_rows == 1:
        forms.append(record)
    row_schema = served.schema.item_schema()
    if row_schema is not None:
        items = {"type": "array", "items": row_schema, "minItems": 1}
        forms += [_object({form: items, **params}, [form], closed=True) for form in ("instances", "inputs")]
    answer: dict[str, Schema] = {
        "predictions": {"type": "array", "items": {"$ref": f"#/components/schemas/{name}.Prediction"}},
        "ids": {"type": "array", "items": _TEXT, "description": "What each prediction is called, for /feedback."},
        "model": {"const": name},
        "version": _TEXT,
    }
    words = (
        "MLflow's scoring protocol, or records by themselves. Also taken: `ids`, a list of texts beside the rows, as "
        "many as there are; `inputs` as columns of one length or as an array; CSV with a header, as text/csv."
    )
    operation = _operation(f"score {name}", words, {"anyOf": forms}, _object(answer, list(answer)))
    operation["parameters"] = [_REQUEST_ID]
    if served.explainer is not None:
        operation["parameters"] = [_REQUEST_ID, _EXPLAIN]
        schema = operation["responses"]["200"]["content"][_JSON]["schema"]
        schema["properties"]["explanations"] = {"type": "array", "items": _EXPLANATION, "description": "If asked for."}
    return {"post": operation}


def _feedback(name: str, served: LoadedModel) -> dict[str, Any]:
    target = served.preparation.target
    value = _LABELS[served.preparation.task](target)
    if len(target.columns) > 1:
        value = _object(dict.fromkeys(target.columns, value), target.columns)
    giver: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_BY, "description": "Who says so."}
    row_id: Schema = {"type": ["string", "integer"], "minLength": 1, "maxLength": LONGEST_ID}
    labelled = _object({"id": row_id, "label": value, "by": giver}, ["id", "label"])
    unknown = _object({"label": {"enum": ["", None]}, "by": giver}, ["label"])
    answer: dict[str, Schema] = {
        "accepted": {"type": "integer"},
        "empty": {"type": "integer"},
        "model": {"const": name},
    }
    words = (
        "What turned out, by the ids of predictions made already or yet to be made. "
        f"{', '.join(f'`{name}`' for name in target.columns)} may stand for `label`; without a label a row is passed "
        "over. Also taken: a list of such, `labels` beside `by`, and CSV with a header, as text/csv; of several rows "
        "an id has one label; of a multilabel model a label may be the list of the names of the labels."
    )
    return {"post": _operation(f"label {name}", words, {"anyOf": [labelled, unknown]}, _object(answer, list(answer)))}


def _class(target: TargetEncoding) -> Schema:
    return {"enum": target.names}


def _flag(target: TargetEncoding) -> Schema:
    del target
    return {"enum": [0, 1]}


def _number(target: TargetEncoding) -> Schema:
    del target
    return _NUMBER_OR_DIGITS


_LABELS: PerTask[Callable[[TargetEncoding], Schema]] = {
    "binary": _class,
    "multiclass": _class,
    "multilabel": _flag,
    "regression": _number,
    "quantile": _number,
    "language": _number,
    "ranking": _number,
}
"""The schema of the label of a target, or of one of several targets."""


def _split(served: LoadedModel, min_rows: int) -> Schema:
    properties = served.schema.record_schema()["properties"]
    row = {"type": "array", "prefixItems": list(properties.values()), "items": False, "minItems": len(properties)}
    data = {"type": "array", "items": row, "minItems": min_rows}
    columns = {"const": list(properties), "description": "In any order, with a value for each in every row."}
    return _object({"columns": columns, "data": data}, ["columns", "data"], closed=True)


def prediction_schema(served: LoadedModel) -> Schema:
    """Return the JSON Schema of one row's prediction in a response."""
    target, names = served.preparation.target, answer_columns(served.preparation.task, served.preparation.target)
    if names:
        columns: dict[str, Schema] = {column: {"type": ["number", "null"]} for column in names}
        if target.positive:
            columns[names[-1]]["description"] = "Of the positive class: what metric, costs and threshold are about."
        if LABEL in columns:
            columns[LABEL] = {"enum": target.names}
        if LABELS in columns:
            columns[LABELS] = {"type": "array", "items": {"enum": target.names}, "uniqueItems": True}
    else:
        kinds: dict[bool, Schema] = {True: _TEXT, False: {"type": ["number", "null"]}}
        columns = {port.name: kinds[port.dtype == "BYTES"] for port in served.outputs}
    return _object(columns, list(columns))


def _infer(name: str, served: LoadedModel) -> dict[str, Any]:
    tensors = [_tensor(port) for port in served.inputs]
    inputs = {
        "type": "array",
        "prefixItems": tensors,
        "items": False,
        "minItems": len(tensors),
        "description": "One each, in any order. The schema is of one row: of n rows every shape begins with n.",
    }
    outputs = {"type": "array", "items": _object({"name": {"enum": [port.name for port in served.outputs]}}, ["name"])}
    request: dict[str, Schema] = {
        "id": {"type": "string", "maxLength": LONGEST_ID},
        "parameters": {"type": "object"},
        "inputs": inputs,
        "outputs": outputs,
    }
    schema = _object(
        {"name": _TEXT, "shape": _sizes(), "datatype": _TEXT, "data": {"type": "array"}}, ["name", "shape"]
    )
    answer: dict[str, Schema] = {
        "model_name": {"const": name},
        "model_version": _TEXT,
        "id": _TEXT,
        "parameters": {"type": "object"},
        "outputs": {"type": "array", "items": schema},
    }
    words = (
        "Open Inference Protocol v2, with the binary tensor extension both ways (Inference-Header-Content-Length). "
        "The parameter `timeout` is in microseconds."
    )
    operation = _operation(
        f"infer {name}", words, _object(request, ["inputs"]), _object(answer, ["model_name", "outputs"])
    )
    operation["parameters"] = [_REQUEST_ID]
    operation["responses"]["200"]["content"][_OCTETS] = {"schema": {"type": "string", "format": "binary"}}
    return {"post": operation}


def _tensor(port: TensorSpec) -> Schema:
    """Return the schema of an input with one row."""
    shape = [1, *port.shape[1:]]
    count = math.prod(shape)
    element = _ELEMENTS.get(port.dtype, {"type": ["number", "boolean", "null"], **FINITE})
    data = {"type": "array", "items": element, "minItems": count, "maxItems": count}
    fixed = {"name": port.name, "shape": shape, "datatype": port.dtype}
    tensor: dict[str, Schema] = {**{key: {"const": value} for key, value in fixed.items()}, "data": data}
    return _object(tensor, list(tensor))


def _metadata(name: str) -> dict[str, Any]:
    port = _object({"name": _TEXT, "datatype": _TEXT, "shape": _sizes()}, ["name", "datatype", "shape"])
    ports = {"type": "array", "items": port}
    properties: dict[str, Schema] = {
        "name": {"const": name},
        "versions": {"type": "array", "items": _TEXT},
        "platform": _TEXT,
        "inputs": ports,
        "outputs": ports,
    }
    return {
        "get": _operation(f"describe {name}", "What it takes and gives.", None, _object(properties, list(properties)))
    }


def _model_ready(name: str) -> dict[str, Any]:
    schema = _object({"name": {"const": name}, "ready": {"type": "boolean"}}, ["name", "ready"])
    return {"get": _operation(f"is {name} ready", "200 if it can answer.", None, schema)}


def _operation(title: str, words: str, request: Schema | None, response: Schema) -> dict[str, Any]:
    """Return one method of one path, with the error responses that all methods share."""
    codes = [401, 404, 405, 429, 503] if request is None else list(_ERRORS)
    responses: dict[str, Any] = {"200": {"description": "The answer.", "content": {_JSON: {"schema": response}}}}
    for code in codes:
        error = {"schema": {"$ref": "#/components/schemas/Error"}}
        responses[str(code)] = {"description": _ERRORS[code], "content": {_JSON: error}}
    operation: dict[str, Any] = {"summary": title, "description": words, "responses": responses}
    if request is not None:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": request}}}
    return operation


def _object(properties: Mapping[str, Schema], required: Sequence[str], *, closed: bool = False) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {**schema, "additionalProperties": False} if closed else schema


_REQUEST_ID = {
    "name": "x-request-id",
    "in": "header",
    "description": "Names the prediction, and decides who answers during a canary; else an id is made.",
    "schema": {"type": "string", "maxLength": LONGEST_ID},
}
_EXPLAIN = {
    "name": "explain",
    "in": "query",
    "description": "1: say what each column contributed to each answer; of a few rows at once.",
    "schema": {"enum": ["0", "1", "false", "true"]},
}
_EXPLANATION: Schema = {
    "type": "object",
    "properties": {
        "of": _TEXT,
        "base": _NUMBER,
        "value": _NUMBER,
        "contributions": {"type": "object", "additionalProperties": _NUMBER},
    },
    "required": ["of", "base", "value", "contributions"],
}


def _sizes() -> Schema:
    return {"type": "array", "items": {"type": "integer"}}


def _get(title: str, words: str, properties: Mapping[str, Schema]) -> dict[str, Any]:
    return {"get": _operation(title, words, None, _object(properties, list(properties)))}


def _metrics() -> dict[str, Any]:
    operation = _operation("metrics", "Prometheus' text, of all workers.", None, {})
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return operation


_SERVER = {
    "/ping": _get("ping", "200 when every model can answer.", {"status": _TEXT}),
    "/health": _get("health", "As /ping.", {"status": _TEXT}),
    "/version": _get("version", "Which version answers, by model.", {}),
    "/metrics": {"get": _metrics()},
    "/v2": _get(
        "server",
        "What answers here.",
        {"name": _TEXT, "version": _TEXT, "extensions": {"type": "array", "items": _TEXT}},
    ),
    "/v2/health/live": _get("live", "The server can hear.", {"live": {"type": "boolean"}}),
    "/v2/health/ready": _get("ready", "Every model can answer.", {"ready": {"type": "boolean"}}),
}
