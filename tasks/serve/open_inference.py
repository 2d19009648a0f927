"""The Open Inference Protocol (v2) over HTTP: `/v2/...`."""

from __future__ import annotations

import functools
import importlib.metadata
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.errors import DataError
from models.serving import http_errors
from models.serving.open_inference import EXTENSIONS, InferenceRequest, described, inference_of, written
from models.serving.predict_request import PredictRequest
from tasks.serve.answering import PredictResponse, answer, checked_key, model_name, picked
from tasks.serve.bodies import LARGE_BYTES, answered, content_of, json_response, off_loop
from tasks.serve.calls import Endpoint, HttpRequest, HttpResponse, route
from tasks.serve.health import why_dead, why_not_ready
from tasks.serve.scoring import VERSION, request_id
from tasks.serve.state import WorkerState

JSON_BYTES = "inference-header-content-length"
OCTETS = "application/octet-stream"


async def live(request: Request) -> Response:
    """Answer the liveness probe of the server."""
    is_live = why_dead(request.app.state) is None
    return json_response({"live": is_live}, 200 if is_live else 503)


async def ready(request: Request) -> Response:
    """Answer the readiness probe of the server: every model can answer."""
    is_ready = why_not_ready(request.app.state) is None
    return json_response({"live": True, "ready": is_ready}, 200 if is_ready else 503)


async def server(_: Request) -> Response:
    """Return the metadata of the server."""
    return json_response({"name": "loopline", "version": own_version(), "extensions": EXTENSIONS})


async def model_ready(request: Request) -> Response:
    """Answer the readiness probe of a model, or of one version of it."""
    name = model_name(request.app.state, request.path_params["name"])
    version = request.path_params.get("version")
    loaded = request.app.state.loaded[name]
    if not loaded.is_ready:
        return json_response({"name": name, "ready": False}, 503)
    picked(request.app.state, name, version, "")
    return json_response({"name": name, "ready": True})


async def metadata(request: Request) -> Response:
    """Return the metadata of a model."""
    return json_response(
        model_metadata(request.app.state, request.path_params["name"], request.path_params.get("version"))
    )


async def infer(call: HttpRequest) -> HttpResponse:
    """Predict."""
    body = content_of(call.headers, call.body, call.state.settings.most_bytes)
    is_large = len(body) > LARGE_BYTES
    inference = await off_loop(is_large, _inference, body, _json_bytes(call))
    name, version = call.params["name"], call.params.get("version")
    question = question_of(inference, name, version, request_id(call), is_large=is_large)
    response = await answer(call.state, question)
    return await off_loop(is_large, _rendered, call, inference, response)


def _inference(body: bytes, json_bytes: int | None) -> InferenceRequest:
    try:
        return inference_of(body, json_bytes)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error


def _rendered(call: HttpRequest, inference: InferenceRequest, response: PredictResponse) -> HttpResponse:
    served = response.served
    rendered = written(inference, response.answer.outputs, served.outputs, served.project, served.version, response.key)
    headers = {VERSION: served.version}
    if rendered.json_bytes is None:
        return answered(call.headers, rendered.body, headers)
    return answered(call.headers, rendered.body, {**headers, JSON_BYTES: str(rendered.json_bytes)}, OCTETS)


def question_of(
    inference: InferenceRequest, name: str, version: str | None, request_id: str, *, is_large: bool = False
) -> PredictRequest:
    """Build the prediction request from a request of the protocol, for any transport."""
    deadline = None if inference.timeout_s is None else time.monotonic() + inference.timeout_s
    key = checked_key(inference.id) or request_id
    return PredictRequest(
        lambda schema: schema.from_tensors(inference.tensors),
        name,
        version,
        key=key,
        deadline=deadline,
        is_large=is_large,
        check_version=lambda served: inference.check_outputs(served.outputs),
    )


def model_metadata(state: WorkerState, name: str, version: str | None) -> dict[str, Any]:
    """Return the inputs and outputs of a model, or of one version of it.

    Raises:
        RequestError: The model or the version is not served here.
    """
    name = model_name(state, name)
    served = picked(state, name, version, "")
    return described(name, state.loaded[name].versions, served.inputs, served.outputs)


@functools.cache
def own_version() -> str:
    """Return the version of Loopline."""
    return importlib.metadata.version("loopline")


def _json_bytes(call: HttpRequest) -> int | None:
    header = call.headers.get(JSON_BYTES)
    if header is None:
        return None
    if not header.isdecimal() or len(header) > 18:
        raise http_errors.unreadable(
            f"Inference-Header-Content-Length: got {header[:40]!r}, expected a number of bytes"
        )
    return int(header)


CALLS: dict[str, Endpoint] = {
    "/v2/models/{name}/infer": infer,
    "/v2/models/{name}/versions/{version}/infer": infer,
}
ROUTES = [
    *(route(path, endpoint) for path, endpoint in CALLS.items()),
    Route("/v2/health/live", live),
    Route("/v2/health/ready", ready),
    Route("/v2", server),
    Route("/v2/", server),
    Route("/v2/models/{name}/ready", model_ready),
    Route("/v2/models/{name}/versions/{version}/ready", model_ready),
    Route("/v2/models/{name}", metadata),
    Route("/v2/models/{name}/versions/{version}", metadata),
]
