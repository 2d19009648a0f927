"""The Open Inference Protocol over HTTP: requests read, answers written."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DataError
from models.inference.tensors import TensorSpec
from models.serving.open_inference import InferenceRequest, described, inference_of, timeout_of, written

X = {"name": "x", "shape": [2], "datatype": "FP64"}
PORTS = [TensorSpec("label", "BYTES", (-1,)), TensorSpec("chances", "FP32", (-1, 2))]
OUTPUTS = {"label": np.array(["a", "é"], object), "chances": np.array([[0.5, 0.5], [np.nan, 1]], np.float32)}


def read(**request: object) -> InferenceRequest:
    return inference_of(json.dumps({"inputs": [{**X, "data": [1, None]}], **request}).encode())


def test_a_request_of_json_alone() -> None:
    found = read(id="q", parameters={"timeout": 5_000_000})
    np.testing.assert_array_equal(found.tensors["x"], [1, np.nan])
    assert (found.id, found.outputs, found.binary, found.timeout_s) == ("q", None, False, 5.0)


def test_tensors_follow_the_json_in_the_order_of_the_inputs() -> None:
    inputs = [{**X, "name": name, "parameters": {"binary_data_size": 16}} for name in ("b", "a")]
    inputs.insert(1, {**X, "data": [5, 6]})
    head = json.dumps({"inputs": inputs}).encode()
    tail = np.array([1.0, 2, 3, 4]).tobytes()
    found = inference_of(head + tail, len(head)).tensors
    assert {name: values.tolist() for name, values in found.items()} == {"b": [1, 2], "x": [5, 6], "a": [3, 4]}


@pytest.mark.parametrize(
    ("parameters", "output", "binary"),
    [
        ({}, {}, False),
        ({}, {"binary_data": True}, True),
        ({"binary_data_output": True}, {}, True),
        ({"binary_data_output": True}, {"binary_data": False}, False),
    ],
)
def test_an_output_says_for_itself_whether_it_goes_as_bytes(
    parameters: dict[str, object], output: dict[str, object], binary: bool
) -> None:
    found = read(parameters=parameters, outputs=[{"name": "label", "parameters": output}])
    assert found.outputs == {"label": binary}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (5, "the body: got 5"),
        ({}, "`inputs`: got null"),
        ({"inputs": {}}, "`inputs`: got an object"),
        ({"inputs": [5]}, "an input: got 5"),
        ({"inputs": [{}]}, "name of an input: got null"),
        ({"inputs": [X]}, "`data` is no list"),
        ({"inputs": [{**X, "data": [1]}]}, "got 1 elements, expected 2"),
        ({"inputs": [{**X, "data": [1, 2]}] * 2}, "'x' is there twice"),
        (
            {"inputs": [{**X, "parameters": {"binary_data_size": 16}}]},
            "got binary_data_size 16, .* at most the 0 that",
        ),
        ({"inputs": [{**X, "parameters": {"binary_data_size": "1"}}]}, "got binary_data_size '1'"),
        ({"inputs": [{**X, "parameters": 5}]}, "parameters of 'x': got 5"),
        ({"inputs": [], "id": 5}, "id: got 5"),
        ({"inputs": [], "parameters": []}, "parameters: got a list"),
        ({"inputs": [], "outputs": [{}]}, "name of an output: got null"),
        ({"inputs": [], "parameters": {"timeout": "soon"}}, "`timeout`: got 'soon'"),
        ({"inputs": [], "parameters": {"timeout": -5}}, "`timeout`: got -5, expected whole microseconds"),
        (
            {"inputs": [], "outputs": [{"name": "p", "parameters": {"classification": 2}}]},
            "'p': parameter `classification` is not supported",
        ),
        ({"inputs": [{**X, "parameters": {"shared_memory_region": "r"}}]}, "`shared_memory_region` is not supported"),
    ],
)
def test_a_request_that_is_not_the_protocols_says_why(request_: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        inference_of(json.dumps(request_).encode())


ANY = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(["", "x", "FP64", "BYTES", "UINT8"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["name", "a"]), inner)),
    max_leaves=12,
)
FIELDS = ("name", "shape", "datatype", "data", "parameters")


@given(st.dictionaries(st.sampled_from(FIELDS), ANY), st.dictionaries(st.sampled_from(["id", "outputs"]), ANY))
def test_no_json_does_harm(tensor: dict[str, object], more: dict[str, object]) -> None:
    """A request, or a `DataError`: nothing else."""
    for inputs in ([{**X, "data": [1, 2], **tensor}], [tensor], tensor):
        body = json.dumps({"inputs": inputs, **more}).encode()
        with contextlib.suppress(DataError):
            assert inference_of(body).tensors


@given(st.binary(max_size=80), st.integers(0, 90), st.integers(-5, 90))
def test_no_bytes_do_harm(tail: bytes, length: int, size: int) -> None:
    head = json.dumps({"inputs": [{**X, "parameters": {"binary_data_size": size}}]}).encode()
    for json_bytes in (length, len(head)):
        with contextlib.suppress(DataError):
            assert len(inference_of(head + tail, json_bytes).tensors["x"]) == 2


def test_the_lengths_of_header_and_body_must_agree() -> None:
    body = json.dumps({"inputs": []}).encode()
    with pytest.raises(DataError, match="got 99, expected the bytes of the JSON, at most the 14 of the body"):
        inference_of(body, 99)
    with pytest.raises(DataError, match="3 bytes follow the last tensor"):
        inference_of(body + b"abc", len(body))
    with pytest.raises(DataError, match="is not JSON"):
        inference_of(body, 5)


def test_an_answer_of_json_is_flat_and_has_null_for_no_number() -> None:
    made = written(InferenceRequest({}, id="q"), OUTPUTS, PORTS, "tiny", "3", "key")
    assert made.json_bytes is None
    assert json.loads(made.body) == {
        "model_name": "tiny",
        "model_version": "3",
        "id": "q",
        "parameters": {"prediction_id": "key"},
        "outputs": [
            {"name": "label", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]},
            {"name": "chances", "shape": [2, 2], "datatype": "FP32", "data": [0.5, 0.5, None, 1.0]},
        ],
    }


def test_an_answer_of_bytes_says_where_they_begin_and_how_many_there_are() -> None:
    made = written(InferenceRequest({}, outputs={"chances": True, "label": False}), OUTPUTS, PORTS, "tiny", "3", "key")
    told = json.loads(made.body[: made.json_bytes])
    assert "id" not in told
    assert [output["name"] for output in told["outputs"]] == ["chances", "label"]
    assert told["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert made.body[made.json_bytes :] == OUTPUTS["chances"].tobytes()


def test_an_output_that_the_model_lacks_is_refused() -> None:
    read(outputs=[{"name": "label"}]).check_outputs(PORTS)
    with pytest.raises(DataError, match="no output 'no': there is 'label', 'chances'"):
        read(outputs=[{"name": "no"}]).check_outputs(PORTS)


def test_a_timeout_is_in_microseconds_and_0_is_none() -> None:
    assert [timeout_of(given) for given in (None, 0, 1500, "1500")] == [None, None, 0.0015, 0.0015]


def test_a_models_metadata() -> None:
    told = described("tiny", ["3", "2"], [TensorSpec("x", "FP64", (-1,))], PORTS)
    assert told["versions"] == ["3", "2"]
    assert told["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1]}]
    assert told["platform"] == "onnx_onnxv1"
