"""OpenAPI from what models take and give."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from models.inference.loaded_model import LoadedModel
from models.serving.open_api import document
from tests.served_models import write_served

TASKS = ("binary", "multiclass", "regression", "image", "series", "language")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    place = tmp_path_factory.mktemp("models")
    for task in TASKS:
        write_served(place / task, task)
    return {task: LoadedModel(task, "3", place / task) for task in TASKS}


@pytest.fixture(scope="module")
def told(models: dict[str, LoadedModel]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(document(models, "1")))
    return found


def body_schema(told: dict[str, Any], path: str) -> dict[str, Any]:
    schema = told["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return {**schema, "components": told["components"]}


def is_valid(schema: dict[str, Any], value: object) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def test_every_address_of_every_model_is_in_it(told: dict[str, Any]) -> None:
    for task in TASKS:
        for address in ("infer", "ready"):
            assert f"/v2/models/{task}/{address}" in told["paths"]
            assert f"/v2/models/{task}/versions/{{version}}/{address}" in told["paths"]
        assert f"/models/{task}/invocations" in told["paths"]


def test_one_model_needs_no_name(told: dict[str, Any], models: dict[str, LoadedModel], tmp_path: Path) -> None:
    assert "/invocations" not in told["paths"]
    assert "/invocations" in document({"binary": models["binary"]}, "1")["paths"]


def test_a_token_is_asked_everywhere_but_where_orchestrators_ask(models: dict[str, LoadedModel]) -> None:
    told = document(models, "1")
    assert "security" not in told
    assert {path for path, item in told["paths"].items() if item.get("post", {}).get("security")} == {
        path for path in told["paths"] if path.endswith("/feedback")
    }
    told = document(models, "1", needs_token=True)
    assert told["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    open_to_all = {path for path, item in told["paths"].items() if item.get("get", {}).get("security") == []}
    assert open_to_all == {"/ping", "/health", "/v2/health/live", "/v2/health/ready"}


@pytest.mark.parametrize("task", TASKS)
def test_the_schemas_are_schemas(told: dict[str, Any], task: str) -> None:
    for path in (f"/models/{task}/invocations", f"/v2/models/{task}/infer"):
        jsonschema.Draft202012Validator.check_schema(body_schema(told, path))


@pytest.mark.parametrize(
    "body",
    [
        {"x": 1, "c": "u", "note": 5},
        [{"x": None, "c": True}],
        {"dataframe_records": [{"x": 1.5, "c": 3}], "params": {}},
        {"dataframe_split": {"columns": ["x", "c"], "data": [[1, "u"], [None, None]]}},
    ],
)
def test_rows_of_a_table_are_valid(told: dict[str, Any], body: object) -> None:
    assert is_valid(body_schema(told, "/models/binary/invocations"), body)


@pytest.mark.parametrize(
    "body",
    [
        {"x": 1},
        [],
        {"x": "1", "c": "u"},
        {"dataframe_records": [{"x": 1, "c": 1.5}]},
        {"dataframe_split": {"columns": ["x", "c"], "data": [[1]]}},
        {"dataframe_records": [{"x": 1, "c": "u"}], "more": 1},
    ],
)
def test_what_the_server_refuses_is_not_valid(told: dict[str, Any], body: object) -> None:
    assert not is_valid(body_schema(told, "/models/binary/invocations"), body)


def test_a_series_needs_as_many_steps_as_its_window(told: dict[str, Any]) -> None:
    schema = body_schema(told, "/models/series/invocations")
    assert is_valid(schema, [{"x": 1, "y": 2}] * 3)
    assert not is_valid(schema, [{"x": 1, "y": 2}] * 2)
    assert not is_valid(schema, {"x": 1, "y": 2})


def test_tensors_have_the_models_shapes(told: dict[str, Any]) -> None:
    schema = body_schema(told, "/v2/models/image/infer")
    tensor = {"name": "image", "shape": [1, 2, 3, 1], "datatype": "UINT8", "data": [0, 1, 2, 3, 4, 255]}
    assert is_valid(schema, {"inputs": [tensor]})
    assert not is_valid(schema, {"inputs": [{**tensor, "data": [256] * 6}]})
    assert not is_valid(schema, {"inputs": [{**tensor, "shape": [1, 6]}]})


def test_predictions_name_the_classes(told: dict[str, Any]) -> None:
    schemas = told["components"]["schemas"]
    assert schemas["multiclass.Prediction"]["properties"]["label"]["enum"] == ["no", "perhaps", "yes"]
    assert "probability_perhaps" in schemas["multiclass.Prediction"]["required"]
    assert schemas["regression.Prediction"]["required"] == ["prediction"]
    assert schemas["language.Prediction"]["required"] == ["next_character", "probability", "bits_per_char"]


def test_labels_are_what_the_target_may_be_and_a_text_has_none(
    told: dict[str, Any], models: dict[str, LoadedModel]
) -> None:
    assert "/models/language/feedback" not in told["paths"]
    assert "/feedback" in document({"binary": models["binary"]}, "1")["paths"]
    assert "/feedback" not in document({"language": models["language"]}, "1")["paths"]
    cases: list[tuple[str, object, bool]] = [
        ("binary", {"id": "a", "label": "yes"}, True),
        ("binary", {"id": "a", "label": "perhaps"}, False),
        ("multiclass", {"id": "a", "label": "perhaps", "by": "Ada"}, True),
        ("regression", {"id": "a", "label": 1.5}, True),
        ("regression", {"id": "", "label": 1.5}, False),
        ("series", {"id": "a"}, False),
    ]
    for task, body, is_right in cases:
        assert is_valid(body_schema(told, f"/models/{task}/feedback"), body) is is_right, body
