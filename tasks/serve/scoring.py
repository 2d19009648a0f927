"""MLflow's scoring protocol over HTTP: `/version`, `/invocations`; see `health` for `/ping`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.errors import DataError
from models.serving import http_errors
from models.serving.http_errors import RequestError
from models.serving.json_pieces import free_in_pieces, written
from models.serving.mlflow_scoring import scoring_of_csv, scoring_of_json
from models.serving.predict_request import PredictRequest
from tasks.serve import explaining
from tasks.serve.answering import PredictResponse, answer, checked_key
from tasks.serve.bodies import LARGE_BYTES, answered, content_of, json_response, kind_of, off_loop
from tasks.serve.calls import Endpoint, HttpRequest, HttpResponse, route
from tasks.serve.middleware import REQUEST_ID

VERSION = "x-loopline-version"
"""The header with the version that answered."""
CSV = "text/csv"
LARGE_JSON, FEW_ROWS = 1 << 18, 2048
"""Bytes that are parsed in 1 ms, and rows that are read, logged and rendered in 5: a thread would take a sixth more."""


async def versions(request: Request) -> Response:
    """Return the release of each project."""
    loaded = request.app.state.loaded
    return json_response(
        {name: loaded.release.model_dump() if loaded.release else None for name, loaded in loaded.items()}
    )


async def score(call: HttpRequest) -> HttpResponse:
    """Score rows."""
    content = content_of(call.headers, call.body, call.state.settings.most_bytes)
    kind = kind_of(call.headers)
    is_large = len(content) > (LARGE_BYTES if kind == CSV else LARGE_JSON)
    question = await off_loop(is_large, _scoring, kind, content)
    question.is_large = is_large or (len(content) > LARGE_BYTES and not 0 < len(question.parsed) <= FEW_ROWS)
    question.name = call.params.get("name")
    explains = explaining.wants_explanations(call.query)
    if explains:
        question.check_rows = explaining.check
    question.key = request_id(call)
    response = await answer(call.state, question)
    explanations = await explaining.explanations(call.state, response) if explains else None
    return await off_loop(question.is_large, _rendered, call, question, response, explanations)


def _scoring(kind: str, body: bytes) -> PredictRequest:
    if kind not in ("", "application/json", CSV):
        raise RequestError(415, f"got content type {kind[:60]}, expected application/json or {CSV}")
    try:
        return scoring_of_csv(body) if kind == CSV else scoring_of_json(body)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error


def _rendered(
    call: HttpRequest, question: PredictRequest, response: PredictResponse, explanations: Any
) -> HttpResponse:
    free_in_pieces(question.parsed)
    served = response.served
    predictions = served.records(response.answer)
    document = {"predictions": predictions, "ids": response.ids, "model": served.project, "version": served.version}
    if explanations is not None:
        document["explanations"] = explanations
    body = written(document, len(predictions))
    free_in_pieces(predictions)
    return answered(call.headers, body, {VERSION: served.version})


def request_id(call: HttpRequest) -> str:
    """Return the client's id of a request; empty if there is none.

    Raises:
        RequestError: The id is too long.
    """
    return checked_key(call.headers.get(REQUEST_ID, ""))


CALLS: dict[str, Endpoint] = {"/invocations": score, "/models/{name}/invocations": score}
ROUTES = [*(route(path, endpoint) for path, endpoint in CALLS.items()), Route("/version", versions)]
