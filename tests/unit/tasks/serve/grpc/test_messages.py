"""The messages of the protocol are those that clients generate from its file."""

from collections.abc import Iterable

import pytest
from google.protobuf import descriptor, descriptor_pb2
from tritonclient.grpc import service_pb2

from tasks.serve.grpc.messages import DESCRIPTORS, SERVICE, message, read

OURS = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file[0]


def described(field: descriptor.FieldDescriptor) -> tuple[object, ...]:
    oneof = field.containing_oneof.name if field.containing_oneof else None
    kind = field.message_type.full_name if field.message_type else field.type
    return field.name, field.number, kind, field.is_repeated, oneof


def descriptors(messages: Iterable[descriptor.Descriptor]) -> Iterable[descriptor.Descriptor]:
    """Messages and those within them."""
    for one in messages:
        yield one
        yield from descriptors(one.nested_types)


@pytest.mark.parametrize("name", [one.name for one in OURS.message_type])
def test_every_field_has_the_name_number_and_type_that_clients_know(name: str) -> None:
    """A client of Triton's knows more messages and fields than the protocol has."""
    known = {one.full_name: one for one in descriptors(service_pb2.DESCRIPTOR.message_types_by_name.values())}
    for ours in descriptors([message(name).DESCRIPTOR]):
        theirs = {described(field) for field in known[ours.full_name].fields}
        assert {described(field) for field in ours.fields} <= theirs, ours.full_name


def test_every_method_is_one_that_clients_know() -> None:
    (service,) = OURS.service
    assert f"{OURS.package}.{service.name}" == SERVICE
    known = service_pb2.DESCRIPTOR.services_by_name[service.name].methods_by_name
    for method in service.method:
        theirs = known[method.name]
        types = (theirs.input_type.full_name, theirs.output_type.full_name)
        assert (method.input_type, method.output_type) == tuple(f".{one}" for one in types)


def test_the_messages_and_those_of_a_client_are_in_one_process_as_two_classes() -> None:
    """In one pool they would clash: both are named `inference.ModelInferRequest`."""
    ours, theirs = message("ModelInferRequest").DESCRIPTOR, service_pb2.ModelInferRequest.DESCRIPTOR
    assert ours.full_name == theirs.full_name
    assert ours.file.pool is not theirs.file.pool


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
