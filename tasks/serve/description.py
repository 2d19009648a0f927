"""`/openapi.json`: what this server takes and gives, from the models that answer now."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models.serving.open_api import document
from tasks.serve.bodies import answered
from tasks.serve.open_inference import own_version


async def described(request: Request) -> Response:
    """The document; a model that has no version yet is not in it."""
    state = request.app.state
    found = {name: shelf.pick("") for name, shelf in state.shelves.items() if shelf.is_ready}
    models = {name: served for name, served in found.items() if served is not None}
    said = document(models, own_version(), needs_token=not state.access.is_open)
    told = answered(request.headers, orjson.dumps(said), {})
    return Response(told.body, told.status, told.headers)


ROUTES = [Route("/openapi.json", described)]
