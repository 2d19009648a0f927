"""The Open Inference Protocol (v2) and health checks over gRPC, in the event loop of each worker.

The workers share the port by SO_REUSEPORT. This module is imported only if a gRPC port is set.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health_pb2

from models.errors import DataError
from models.serving import http_errors
from models.serving.http_errors import RequestError
from models.serving.open_inference import EXTENSIONS
from tasks.host.http_guard import is_forwarded
from tasks.release.settings import MOST_CONNECTIONS, ServerSettings
from tasks.serve.answering import answer, checked_key, model_name, picked
from tasks.serve.bodies import LARGE_BYTES
from tasks.serve.grpc.messages import SERVICE, message, parsed, read
from tasks.serve.grpc.tensors import inference_of, response_of
from tasks.serve.health import why_dead, why_not_ready
from tasks.serve.middleware import REQUEST_ID, UNLOGGED
from tasks.serve.open_inference import model_metadata, own_version, question_of
from tasks.serve.request_context import begin
from tasks.serve.state import WorkerState

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The status of gRPC for one of HTTP."""
HEALTH = "grpc.health.v1.Health"
"""The service of gRPC's own health checks."""
GRACE_S = 10.0
"""Seconds that open calls get when the server ends."""
MOST_CALLS = 64
"""Calls at once in a worker; further ones get RESOURCE_EXHAUSTED. Each may hold a message of `most_bytes`."""
LIMITS = (
    ("grpc.so_reuseport", 1),
    ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
    ("grpc.max_concurrent_streams", MOST_CALLS // 2),  # further calls of one connection wait in its client
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.max_connection_age_ms", 600_000),  # then the client connects anew, by itself
    ("grpc.max_connection_age_grace_ms", 60_000),  # a message that is sent more slowly is cut
)
"""What one caller, or many, may hold of a worker: gRPC's public settings."""

_log = logging.getLogger("loopline.serve")
Call = Callable[[WorkerState, Any, Any], Awaitable[Any]]


async def start(state: WorkerState) -> grpc.aio.Server:
    """Start a gRPC server for the worker's models; it runs until it is stopped."""
    settings = state.settings
    options = [("grpc.max_receive_message_length", settings.most_bytes), *LIMITS]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
    handlers = {name: _handler(state, name, call) for name, call in _CALLS.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    health = {
        "Check": grpc.unary_unary_rpc_method_handler(
            functools.partial(_check, state),
            request_deserializer=functools.partial(parsed, health_pb2.HealthCheckRequest),
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH, health),))
    address = f"{settings.host}:{settings.grpc_port}"
    credentials = _credentials(settings)
    if credentials is None:
        server.add_insecure_port(address)
    else:
        server.add_secure_port(address, credentials)
    await server.start()
    return server


async def _check(state: WorkerState, request: Any, context: Any) -> Any:
    """Return whether the server or a model can answer; for the service `liveness`, whether the process works.

    It needs no token. `Watch` is not implemented; clients treat that as healthy. Source: gRPC Health Checking Protocol.
    """
    if request is None:
        await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "got bytes that are no HealthCheckRequest")
    name = request.service
    if name in ("", SERVICE):
        is_well = why_not_ready(state) is None
    elif name == "liveness":
        is_well = why_dead(state) is None
    elif name in state.loaded:
        is_well = state.loaded[name].is_ready
    else:
        await _refuse(context, grpc.StatusCode.NOT_FOUND, f"no service {name[:60]!r} is checked here")
    states = health_pb2.HealthCheckResponse
    return states(status=states.SERVING if is_well else states.NOT_SERVING)


def _credentials(settings: ServerSettings) -> grpc.ServerCredentials | None:
    """Return the credentials from HTTP's certificate; None without TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    pair = (Path(settings.tls_key).read_bytes(), Path(settings.tls_cert).read_bytes())
    clients = Path(settings.tls_client_ca).read_bytes() if settings.tls_client_ca else None
    return grpc.ssl_server_credentials([pair], clients, require_client_auth=clients is not None)


async def _live(state: WorkerState, _: Any, __: Any) -> Any:
    return message("ServerLiveResponse")(live=why_dead(state) is None)


async def _ready(state: WorkerState, _: Any, __: Any) -> Any:
    return message("ServerReadyResponse")(ready=why_not_ready(state) is None)


async def _model_ready(state: WorkerState, request: Any, _: Any) -> Any:
    name = model_name(state, request.name)
    if not state.loaded[name].is_ready:
        return message("ModelReadyResponse")(ready=False)
    picked(state, name, request.version or None, "")
    return message("ModelReadyResponse")(ready=True)


async def _server_metadata(_: WorkerState, __: Any, ___: Any) -> Any:
    return message("ServerMetadataResponse")(name="loopline", version=own_version(), extensions=EXTENSIONS)


async def _model_metadata(state: WorkerState, request: Any, _: Any) -> Any:
    metadata = model_metadata(state, request.name, request.version or None)
    return message("ModelMetadataResponse")(**metadata)


async def _infer(state: WorkerState, request: Any, context: Any) -> Any:
    try:
        inference = inference_of(request)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error
    key = checked_key(str(dict(context.invocation_metadata() or ()).get(REQUEST_ID, "")))
    is_large = request.ByteSize() > LARGE_BYTES
    question = question_of(inference, request.model_name, request.model_version or None, key, is_large=is_large)
    remaining_s = context.time_remaining()
    if remaining_s is not None:
        until = time.monotonic() + remaining_s
        question = dataclasses.replace(question, deadline=min(until, question.deadline or until))
    return response_of(inference, await answer(state, question))


_CALLS: dict[str, Call] = {
    "ServerLive": _live,
    "ServerReady": _ready,
    "ModelReady": _model_ready,
    "ServerMetadata": _server_metadata,
    "ModelMetadata": _model_metadata,
    "ModelInfer": _infer,
}


def _handler(state: WorkerState, name: str, call: Call) -> Any:
    async def carried_out(request: Any, context: Any) -> Any:
        http_context = begin()
        try:
            _admit(state, name, context)
            if request is None:
                raise http_errors.unreadable(f"got bytes that are no {name}Request")
            response = await call(state, request, context)
        except RequestError as refusal:
            http_context.status = refusal.status
            await _refuse(context, CODES.get(refusal.status, grpc.StatusCode.FAILED_PRECONDITION), str(refusal))
        except Exception:  # noqa: BLE001 - the details go into the log, not to the client
            http_context.status = 500
            _log.exception("%s failed", name)
            words = "something went wrong here; the server's log says what"
            await _refuse(context, grpc.StatusCode.INTERNAL, words)
        else:
            http_context.status = 200
            if http_context.unlogged:
                context.set_trailing_metadata(((UNLOGGED, "no"),))
            return response
        finally:
            state.count_request(http_context, f"gRPC {name}")

    return grpc.unary_unary_rpc_method_handler(
        carried_out,
        request_deserializer=functools.partial(read, f"{name}Request"),
        response_serializer=message(f"{name}Response").SerializeToString,
    )


def _admit(state: WorkerState, name: str, context: Any) -> None:
    """Check the access of a call; the server's liveness and readiness need no token, as over HTTP."""
    if name in ("ServerLive", "ServerReady"):
        return
    metadata = dict(context.invocation_metadata() or ())
    authorization = str(metadata.get("authorization", ""))
    state.access.admit(authorization, context.peer().rpartition(":")[0], is_forwarded=is_forwarded(metadata))


async def _refuse(context: Any, code: grpc.StatusCode, words: str) -> NoReturn:
    await context.abort(code, words)
    raise AssertionError("abort raises")
