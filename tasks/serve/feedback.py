"""`/feedback`: labels by prediction id; durable before the response, and counted once if sent twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.errors import DataError, StoreError
from models.inference.loaded_model import LoadedModel
from models.inference.row_values import shown
from models.serving import http_errors
from models.serving.feedback import LONGEST_BY, LabelBatch, checked, rows_of_csv
from models.serving.json_pieces import parsed_in_pieces
from tasks.serve.answering import model_name, picked
from tasks.serve.bodies import LARGE_BYTES, content_of, json_response, kind_of, off_loop
from tasks.serve.prediction_logger import PredictionLogger

BY = "feedback"
"""The source of a label if the client names none."""


async def feedback(request: Request) -> Response:
    """Accept labels: `{"id", "label"}`, a list of such, `{"labels": [...], "by": ...}`, or CSV with a header.

    Either all labels are accepted or none. Whether a label repeats or replaces another one, or waits for its
    prediction, is known only after the label is moved into the label store.
    """
    state = request.app.state
    name = model_name(state, request.path_params.get("name"))
    release = state.loaded[name].release
    served = picked(state, name, release.stable if release else None, "")
    body = content_of(request.headers, await request.body(), state.settings.most_bytes)
    is_large = len(body) > LARGE_BYTES
    labels = await off_loop(is_large, _accept, state.prediction_loggers[name], served, kind_of(request.headers), body)
    return json_response({"accepted": len(labels.pairs), "empty": labels.empty, "model": name})


def _accept(log: PredictionLogger, served: LoadedModel, kind: str, body: bytes) -> LabelBatch:
    """Check labels and write them to the log."""
    try:
        giver, rows = _read(body, kind, served.preparation.na_is_text)
        labels = checked(rows, served.preparation)
    except DataError as error:
        raise http_errors.unreadable(str(error)) from error
    if labels.pairs:
        try:
            log.note(labels.pairs, giver)
        except StoreError as error:
            raise http_errors.busy(
                f"{served.project}: labels cannot be written: none was taken, send them again later"
            ) from error
    return labels


ROUTES = [
    Route("/feedback", feedback, methods=["POST"]),
    Route("/models/{name}/feedback", feedback, methods=["POST"]),
]


def _read(body: bytes, kind: str, na_is_text: Sequence[str]) -> tuple[str, Sequence[Any]]:
    """Return the source of the labels, and the rows."""
    if kind == "text/csv":
        return BY, rows_of_csv(body, na_is_text)
    try:
        document = parsed_in_pieces(body, orjson.loads)
    except orjson.JSONDecodeError as error:
        raise DataError(f"the body is no JSON: {error}; CSV comes with `Content-Type: text/csv`") from error
    if isinstance(document, list):
        return BY, document
    if not isinstance(document, Mapping):
        raise DataError(f'got {shown(document)}, expected {{"id": ..., "label": ...}}, or a list of such')
    giver = document.get("by", BY)
    if not isinstance(giver, str) or not 0 < len(giver) <= LONGEST_BY:
        raise DataError(f"by: got {shown(giver)}, expected who gives the labels, in 1 to {LONGEST_BY} characters")
    rows = document.get("labels", [document])
    if not isinstance(rows, list):
        raise DataError(f"labels: got {shown(rows)}, expected a list of objects with an id and a label each")
    return giver, rows
