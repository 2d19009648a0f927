"""The messages of the protocol are those that clients generate from its file."""

import pytest
from google.protobuf import descriptor
from tritonclient.grpc import service_pb2

from tasks.serve.grpc.messages import _FIELDS, message, read

NESTED = {
    "TensorMetadata": "ModelMetadataResponse",
    "InferInputTensor": "ModelInferRequest",
    "InferRequestedOutputTensor": "ModelInferRequest",
    "InferOutputTensor": "ModelInferResponse",
}


def theirs(name: str) -> descriptor.Descriptor:
    holder = getattr(service_pb2, NESTED[name]) if name in NESTED else service_pb2
    return getattr(holder, name).DESCRIPTOR


def described(field: descriptor.FieldDescriptor) -> tuple[object, ...]:
    oneof = field.containing_oneof.name if field.containing_oneof else None
    return field.number, field.type, field.is_repeated, oneof


@pytest.mark.parametrize("name", _FIELDS)
def test_every_field_has_the_number_and_type_that_clients_know(name: str) -> None:
    known = theirs(name).fields_by_name
    for field in message(name).DESCRIPTOR.fields:
        assert described(field) == described(known[field.name]), field.name


def test_bytes_that_are_no_message_are_none() -> None:
    assert read("ModelInferRequest", b"\xff\xff") is None
    assert read("ModelReadyRequest", message("ModelReadyRequest")(name="tiny").SerializeToString()).name == "tiny"


def test_a_request_that_a_client_wrote_reads_back() -> None:
    written = service_pb2.ModelInferRequest(model_name="tiny", id="q", raw_input_contents=[b"abc"])
    written.parameters["timeout"].int64_param = 5
    written.inputs.add(name="x", datatype="FP64", shape=[1]).contents.fp64_contents.append(0.5)
    found = message("ModelInferRequest").FromString(written.SerializeToString())
    assert found.parameters["timeout"].int64_param == 5
    assert found.inputs[0].contents.fp64_contents[0] == 0.5
    assert service_pb2.ModelInferRequest.FromString(found.SerializeToString()) == written
