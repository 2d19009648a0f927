"""The session of a request: its cookie, the token of its forms, and the check that a form came from our page."""

from __future__ import annotations

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tasks.dashboard.security import SESSION_S, AccessRules


def cookie_of(request: Request) -> str:
    """Return the request's session; without a valid session, create one, the same for all calls of this request."""
    gate: AccessRules = request.app.state.gate
    if not hasattr(request.state, "session"):
        cookie = request.cookies.get(gate.cookie, "")
        request.state.session = cookie if gate.knows_session(cookie) else gate.begin(logged_in=False)
    session: str = request.state.session
    return session


def html(request: Request, page: str, status: int = 200) -> Response:
    """Return an HTML response that sets the session's cookie."""
    return keep_session(request, HTMLResponse(page, status), cookie_of(request))


def keep_session(request: Request, response: Response, session: str) -> Response:
    """Set the session's cookie, which scripts cannot read and other sites' forms do not send."""
    gate: AccessRules = request.app.state.gate
    secure = request.url.scheme == "https"
    response.set_cookie(
        gate.cookie, session, max_age=int(SESSION_S), httponly=True, samesite="lax", secure=secure, path="/"
    )
    return response


def form_token(request: Request, path: str) -> str:
    """Return the token that a form of this session must carry to post to `path`."""
    gate: AccessRules = request.app.state.gate
    return gate.form_token(cookie_of(request), path)


def logout_token(request: Request) -> str:
    """Return the token of the logout form; empty on loopback, where there is no login."""
    gate: AccessRules = request.app.state.gate
    return "" if gate.is_open else form_token(request, "/logout")


async def checked_form(request: Request) -> FormData:
    """Return the sent form, if our own page made it for this session and path.

    Raises:
        HTTPException: 403, the form was made elsewhere, for another path, or too long ago.
    """
    gate: AccessRules = request.app.state.gate
    form = await request.form(max_files=0, max_fields=20)
    token, session = form.get("token", ""), request.cookies.get(gate.cookie, "")
    if not isinstance(token, str) or not gate.accepts_form(token, session, request.url.path):
        raise HTTPException(403, "This form did not come from this page, or is too old: go back, look again, then ask.")
    return form


def text_of(form: FormData, name: str, most: int = 500) -> str:
    """Return a field of a form as one line of text, cut to `most` characters."""
    value = form.get(name, "")
    return " ".join(value.split())[:most] if isinstance(value, str) else ""
