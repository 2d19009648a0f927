"""MLflow's scoring protocol over HTTP: `/version`, `/invocations`; see `health` for `/ping`."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.errors import DataError
from models.serving import refusals
from models.serving.refusals import Refusal
from models.serving.rows import Rows
from models.serving.scoring import Scoring, scoring_of_csv, scoring_of_json
from models.serving.served import Served
from tasks.serve import explaining
from tasks.serve.answering import Answered, Question, answer, checked_key
from tasks.serve.bodies import answered, body_of, kind_of, told

VERSION, REQUEST_ID = "x-loopline-version", "x-request-id"
"""Headers: the version that answered; the caller's name of a request."""
CSV = "text/csv"


async def versions(request: Request) -> Response:
    """Which version answers, by project."""
    shelves = request.app.state.shelves
    return told({name: shelf.release.model_dump() if shelf.release else None for name, shelf in shelves.items()})


async def invocations(request: Request) -> Response:
    """Score rows."""
    scoring = _scoring(kind_of(request), await body_of(request, request.app.state.settings.most_bytes))
    name = request.path_params.get("name")
    explains = explaining.is_asked(request)

    def rows(served: Served) -> Rows:
        made = scoring.rows(served.reader)
        if explains:
            explaining.check(served, made)
        return made

    question = Question(rows, name, key=request_id(request), ids=scoring.ids)
    found = await answer(request.app.state, question)
    document = _document(found)
    if explains:
        document["explanations"] = await explaining.explanations(request.app.state, found)
    return answered(request, orjson.dumps(document), {VERSION: found.served.version})


def _scoring(kind: str, body: bytes) -> Scoring:
    if kind not in ("", "application/json", CSV):
        raise Refusal(415, f"got content type {kind[:60]}, expected application/json or {CSV}")
    try:
        return scoring_of_csv(body) if kind == CSV else scoring_of_json(body)
    except DataError as error:
        raise refusals.unreadable(str(error)) from error


def _document(found: Answered) -> dict[str, Any]:
    columns = found.served.columns(found.answer)
    names = list(columns)
    predictions = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    served = found.served
    return {"predictions": predictions, "ids": found.ids, "model": served.project, "version": served.version}


def request_id(request: Request) -> str:
    """The caller's name of a request; empty for none.

    Raises:
        Refusal: It is too long.
    """
    return checked_key(request.headers.get(REQUEST_ID, ""))


ROUTES = [
    Route("/invocations", invocations, methods=["POST"]),
    Route("/models/{name}/invocations", invocations, methods=["POST"]),
    Route("/version", versions),
]
