"""The messages of the Open Inference Protocol over gRPC, from the descriptors that `infra/protos.sh` makes.

They have their own descriptor pool. Generated Python code would register them in protobuf's default pool, which refuses
a client's messages of the same names (tritonclient's) in the same process; it would also need protoc's own version of
protobuf or a later one.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
DESCRIPTORS = Path(__file__).with_name("open_inference.binpb")


@functools.cache
def message(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def read(name: str, content: bytes) -> Any:
    """Parse a message of the protocol by its name; return None if the bytes are not such a message."""
    return parsed(message(name), content)


def parsed(kind: Any, content: bytes) -> Any:
    """Return the bytes as a message of a class, or None if they are no such message."""
    try:
        return kind.FromString(content)
    except DecodeError:
        return None


@functools.cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool
