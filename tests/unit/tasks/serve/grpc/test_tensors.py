"""Requests and answers of the protocol over gRPC."""

from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from models.errors import DataError
from models.inference.loaded_model import LoadedModel
from tasks.serve.answering import PredictResponse
from tasks.serve.grpc.messages import message
from tasks.serve.grpc.tensors import inference_of, response_of
from tests.served_models import write_served


def request(*inputs: dict[str, object], **more: object):
    """As a client writes it, as the server reads it."""
    made = service_pb2.ModelInferRequest(model_name="tiny", inputs=[], **more)
    for given in inputs:
        made.inputs.add(**given)
    return message("ModelInferRequest").FromString(made.SerializeToString())


def tensor(datatype: str, shape: list[int], **contents: object) -> dict[str, object]:
    return (
        {"name": "x", "datatype": datatype, "shape": shape, "contents": contents}
        if contents
        else {"name": "x", "datatype": datatype, "shape": shape}
    )


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (tensor("FP64", [2], fp64_contents=[1, 2]), [1.0, 2.0]),
        (tensor("FP32", [1, 2], fp32_contents=[1, 2]), [[1.0, 2.0]]),
        (tensor("INT8", [2], int_contents=[1, -2]), [1, -2]),
        (tensor("UINT16", [1], uint_contents=[65535]), [65535]),
        (tensor("BOOL", [2], bool_contents=[True, False]), [True, False]),
        (tensor("BYTES", [1], bytes_contents=["é".encode()]), ["é"]),
    ],
)
def test_elements_come_in_the_field_of_their_type(given: dict[str, object], values: list[object]) -> None:
    found = inference_of(request(given, id="q"))
    assert found.tensors["x"].tolist() == values
    assert (found.id, found.binary, found.outputs, found.timeout_s) == ("q", False, None, None)


def test_a_parameter_that_would_change_the_answer_is_refused() -> None:
    asked = request(tensor("FP64", [1], fp64_contents=[1.0]))
    asked.outputs.add(name="p").parameters["classification"].int64_param = 2
    with pytest.raises(DataError, match="'p': parameter `classification` is not supported"):
        inference_of(asked)


def test_elements_may_come_as_bytes_and_then_the_answer_does_too() -> None:
    asked = request(tensor("FP64", [2]), raw_input_contents=[np.array([1.0, 2.0]).tobytes()])
    asked.parameters["timeout"].int64_param = 2_000_000
    asked.outputs.add(name="label")
    found = inference_of(asked)
    assert found.tensors["x"].tolist() == [1.0, 2.0]
    assert (found.binary, found.outputs, found.timeout_s) == (True, {"label": True}, 2.0)


@pytest.mark.parametrize(
    ("given", "raw", "said"),
    [
        ([tensor("FP64", [2], fp64_contents=[1])], [], "got 1 elements, expected 2 x FP64"),
        ([tensor("FP64", [1], fp32_contents=[1])], [], "got 0 elements"),
        ([tensor("UINT8", [1], uint_contents=[256])], [], "UINT8 does not hold"),
        ([tensor("FP16", [1])], [], "FP16 has no contents"),
        ([tensor("BYTES", [1], bytes_contents=[b"\xff"])], [], "no UTF-8"),
        ([tensor("FP64", [1])] * 2, [bytes(8)] * 2, "'x' is there twice"),
        ([tensor("FP64", [1])], [bytes(8)] * 2, "got 2 raw_input_contents for 1 inputs"),
        ([tensor("FP64", [1], fp64_contents=[1])], [bytes(8)], "contents and raw_input_contents"),
        ([tensor("FP64", [-1])], [bytes(8)], "expected whole numbers above 0"),
        ([tensor("", [1])], [bytes(8)], "got datatype ''"),
    ],
)
def test_a_request_that_is_not_the_protocols_says_why(
    given: list[dict[str, object]], raw: list[bytes], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        inference_of(request(*given, raw_input_contents=raw))


@pytest.mark.parametrize("raw", [True, False])
def test_an_answer_reads_back_by_a_client(tmp_path: Path, raw: bool) -> None:
    write_served(tmp_path)
    served = LoadedModel("tiny", "3", tmp_path)
    rows = served.schema.from_records([{"x": 1, "c": "u"}, {"x": 0, "c": "v"}])
    found = PredictResponse(served, rows, served.answer(rows.feed), "key", ["a", "b"])
    asked = request(tensor("FP64", [1]), raw_input_contents=[bytes(8)], id="q") if raw else request(id="q")
    written = response_of(inference_of(asked), found).SerializeToString()
    told = service_pb2.ModelInferResponse.FromString(written)
    assert (told.model_name, told.model_version, told.id) == ("tiny", "3", "q")
    assert told.parameters["prediction_id"].string_param == "key"
    assert [(output.name, list(output.shape)) for output in told.outputs] == [("label", [2]), ("probabilities", [2, 2])]
    if raw:
        assert len(told.raw_output_contents) == 2
        assert np.frombuffer(told.raw_output_contents[1], np.float32)[2] == 0.5
    else:
        assert list(told.outputs[0].contents.bytes_contents) == [b"yes", b"no"]
        assert told.outputs[1].contents.fp32_contents[2] == 0.5
