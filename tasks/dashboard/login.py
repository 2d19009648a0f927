"""Login with the workspace's token, and logout; needed only if others can reach the page."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from models.report.overview_page import render_login
from tasks.dashboard.guard import safe_next
from tasks.dashboard.security import AccessRules
from tasks.dashboard.session import checked_form, form_token, html, keep_session


def ask(request: Request) -> Response:
    """Return the login form."""
    return _form(request, safe_next(request.query_params.get("next", "/")), wrong=False)


async def enter(request: Request) -> Response:
    """Begin a session if the form has the right token."""
    gate: AccessRules = request.app.state.gate
    form = await checked_form(request)
    secret, onward = form.get("secret", ""), safe_next(str(form.get("next", "/")))
    if not isinstance(secret, str) or not gate.knows(secret.strip()):
        return await run_in_threadpool(_form, request, onward, wrong=True)
    return keep_session(request, RedirectResponse(onward, 303), gate.begin(logged_in=True))


async def leave(request: Request) -> Response:
    """End the session in this browser."""
    await checked_form(request)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(request.app.state.gate.cookie, path="/")
    return response


def _form(request: Request, onward: str, *, wrong: bool) -> Response:
    page = render_login(form_token(request, "/login"), onward, wrong=wrong)
    return html(request, page, 403 if wrong else 200)


ROUTES = [
    Route("/login", ask, methods=["GET"]),
    Route("/login", enter, methods=["POST"]),
    Route("/logout", leave, methods=["POST"]),
]
