"""Calls of the Open Inference Protocol over gRPC, message by message."""

from __future__ import annotations

from typing import Any

import grpc

from tasks.serve.grpc.messages import SERVICE, message


def call(port: int, method: str, request: Any) -> Any:
    """The answer of a method."""
    return call_whole(port, method, request)[0]


def call_whole(
    port: int, method: str, request: Any, credentials: grpc.ChannelCredentials | None = None
) -> tuple[Any, dict[str, str]]:
    """The answer of a method, and the trailing metadata that came with it; over TLS with credentials."""
    address = f"127.0.0.1:{port}"
    with grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address) as channel:
        asked = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=message(f"{method}Request").SerializeToString,
            response_deserializer=message(f"{method}Response").FromString,
        )
        answer, told = asked.with_call(request, timeout=20)
        return answer, dict(told.trailing_metadata() or ())


def typed_request(**more: Any) -> Any:
    """One row for the model `tiny`, its values in the types of their own."""
    request = message("ModelInferRequest")(model_name="tiny", **more)
    request.inputs.add(name="x", datatype="FP64", shape=[1]).contents.fp64_contents.append(1.0)
    request.inputs.add(name="c", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"u")
    return request
