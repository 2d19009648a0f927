"""The messages of the Open Inference Protocol over gRPC, made from a table: no generated code, any protobuf runtime.

They have their own descriptor pool, so that generated messages of a client can be in the same process.
Source: Open Inference Protocol, specification/protocol/open_inference_grpc.proto.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"
# Message -> its fields, numbered from 1. `*` marks a repeated field; `map` maps names to parameters.
_FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live:bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready:bool",
    "ModelReadyRequest": "name:string version:string",
    "ModelReadyResponse": "ready:bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name:string version:string extensions:*string",
    "ModelMetadataRequest": "name:string version:string",
    "TensorMetadata": "name:string datatype:string shape:*int64",
    "ModelMetadataResponse": "name:string versions:*string platform:string inputs:*TensorMetadata "
    "outputs:*TensorMetadata",
    "InferParameter": "bool_param:bool int64_param:int64 string_param:string double_param:double uint64_param:uint64",
    "InferTensorContents": "bool_contents:*bool int_contents:*int32 int64_contents:*int64 uint_contents:*uint32 "
    "uint64_contents:*uint64 fp32_contents:*float fp64_contents:*double bytes_contents:*bytes",
    "InferInputTensor": "name:string datatype:string shape:*int64 parameters:map contents:InferTensorContents",
    "InferRequestedOutputTensor": "name:string parameters:map",
    "ModelInferRequest": "model_name:string model_version:string id:string parameters:map inputs:*InferInputTensor "
    "outputs:*InferRequestedOutputTensor raw_input_contents:*bytes",
    "InferOutputTensor": "name:string datatype:string shape:*int64 parameters:map contents:InferTensorContents",
    "ModelInferResponse": "model_name:string model_version:string id:string parameters:map "
    "outputs:*InferOutputTensor raw_output_contents:*bytes",
}
_CHOICE = {"InferParameter": "parameter_choice"}
"""Messages with a oneof: only one field is set."""
_FIELD = descriptor_pb2.FieldDescriptorProto


@functools.cache
def message(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def read(name: str, content: bytes) -> Any:
    """Parse a message; return None if the bytes are not such a message."""
    try:
        return message(name).FromString(content)
    except DecodeError:
        return None


@functools.cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        _describe(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(described: Any, fields: str) -> None:
    if described.name in _CHOICE:
        described.oneof_decl.add(name=_CHOICE[described.name])
    for number, field in enumerate(fields.split(), 1):
        name, _, kind = field.partition(":")
        if kind == "map":
            _entry(described)
            kind = f"*{described.name}.ParametersEntry"
        made = described.field.add(name=name, number=number)
        made.label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
        _typed(made, kind.lstrip("*"))
        if described.name in _CHOICE:
            made.oneof_index = 0


def _entry(described: Any) -> None:
    """Add the entry type of a map: a map is a repeated message of key and value."""
    entry = described.nested_type.add(name="ParametersEntry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", "string"), ("value", "InferParameter")), 1):
        made = entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        _typed(made, kind)


def _typed(field: Any, kind: str) -> None:
    scalar = getattr(_FIELD, f"TYPE_{kind.upper()}", None)
    if scalar is not None:
        field.type = scalar
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
