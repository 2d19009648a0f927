"""MLflow's webhook: the release controller looks at once instead of at its next poll."""

from __future__ import annotations

import logging
import os
import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.serving import http_errors
from models.serving.http_errors import RequestError
from models.serving.webhooks import is_from_mlflow, model_named
from tasks.release.shared_state import SharedReleaseState
from tasks.serve.bodies import json_response

_log = logging.getLogger("loopline.serve")

VARIABLE = "LOOPLINE_WEBHOOK_SECRET"


async def nudge(request: Request) -> Response:
    """Make the release controller look at once after a webhook delivery; its content is not trusted otherwise."""
    secret = os.environ.get(VARIABLE)
    if not secret:
        raise http_errors.unknown(f"no webhook is expected here: start the server with {VARIABLE} set to its secret")
    body = await request.body()
    if not is_from_mlflow(secret, request.headers, body, time.time()):
        raise RequestError(401, "the delivery is not signed with this server's secret, or is older than five minutes")
    settings, name = request.app.state.settings, model_named(body)
    if name in settings.projects:
        _log.info("%s: MLflow says that something changed: looking at once", name)
        SharedReleaseState(settings.state(name) / "serving").nudge()
    return json_response({"status": "ok"})


ROUTES = [Route("/webhooks/mlflow", nudge, methods=["POST"])]
