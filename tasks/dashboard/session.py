"""The session of a browser: login with the workspace's token, logout, and the tokens of its forms (CSRF).

A page in another tab can send forms to an address on this machine. So each form carries a token of its session and
path. A login is needed on loopback too, which every account of the machine can reach.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from models.report.overview_page import render_login
from models.report.spec_pages.page import PageForm
from tasks.host.workspace import Workspace

SESSION_S = 7 * 86400
KEY, LOGGED_IN = "key", "logged_in"
MOST_FIELD_BYTES = 1 << 20


class Sessions:
    """starlette's sessions; their cookie is `Secure` if the request came over https, through a proxy.

    Args:
        app: The wrapped application.
        token: The token that signs the cookie.
        cookie: The cookie's name.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._plain = SessionMiddleware(app, token, cookie, SESSION_S)
        self._secure = SessionMiddleware(app, token, cookie, SESSION_S, https_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its session."""
        sessions = self._secure if scope.get("scheme") == "https" else self._plain
        await sessions(scope, receive, send)


def cookie_of(workspace: Workspace) -> str:
    """Return the name of the session's cookie; it differs between workspaces, because they share a host's cookies."""
    return f"loopline_{hashlib.sha256(str(workspace.root).encode()).hexdigest()[:8]}"


def form_token(request: Request, path: str) -> str:
    """Return the token that a form of this session must carry to post to `path`; it begins a session if needed."""
    return _token(request.session.setdefault(KEY, secrets.token_urlsafe()), path)


def logout_token(request: Request) -> str:
    """Return the token of the logout form.

    Every page calls this and so begins the session: pages opened side by side then share it.
    """
    return form_token(request, "/logout")


def page_form(request: Request, action: str, error: str = "") -> PageForm:
    """Return what the form of a page has that is sent to an address, and why it came back."""
    return PageForm(action, form_token(request, action), error, logout_token(request))


async def checked_form(
    request: Request, max_files: int = 0, max_fields: int = 20, max_field_bytes: int = MOST_FIELD_BYTES
) -> FormData:
    """Return the sent form, if our own page made it for this session and path.

    Args:
        request: The request.
        max_files: How many files it may hold; whoever takes them closes the form.
        max_fields: How many fields it may hold.
        max_field_bytes: How many bytes each field may hold, unless it is a file.

    Raises:
        HTTPException: 403, the form was made elsewhere, for another path, or too long ago; 400, it cannot be read.
    """
    try:
        form = await request.form(max_files=max_files, max_fields=max_fields, max_part_size=max_field_bytes)
    except (UnicodeError, ClientDisconnect) as error:  # a part may name any of Python's encodings
        raise HTTPException(400, "The form did not come whole, or not as UTF-8: send it again.") from error
    token, key = str(form.get("token", "")), request.session.get(KEY)
    if key is None or not hmac.compare_digest(token.encode(), _token(key, request.url.path).encode()):
        raise HTTPException(403, "This form did not come from this page, or is too old: go back, look again, then ask.")
    return form


def safe_next(address: str) -> str:
    """Return the redirect target after a login: `address` if it is a path of this server, else `/`."""
    parts = urlsplit(address)
    ours = address.startswith("/") and not address.startswith(("//", "/\\")) and not parts.netloc
    return address if ours and address.isprintable() and "\\" not in address else "/"


def _token(key: str, path: str) -> str:
    return hmac.new(key.encode(), path.encode(), "sha256").hexdigest()


def _login_page(request: Request) -> Response:
    """Return the login form."""
    return _form(request, safe_next(request.query_params.get("next", "/")), wrong=False)


async def _enter(request: Request) -> Response:
    """Begin a new session if the form has the right token."""
    form = await checked_form(request)
    secret, onward = str(form.get("secret", "")), safe_next(str(form.get("next", "/")))
    if request.app.state.rules.known(secret.strip()) is None:
        return await run_in_threadpool(_form, request, onward, wrong=True)
    request.session.clear()
    request.session.update({LOGGED_IN: True, KEY: secrets.token_urlsafe()})
    return RedirectResponse(onward, 303)


async def _leave(request: Request) -> Response:
    """End the session in this browser."""
    await checked_form(request)
    request.session.clear()
    return RedirectResponse("/login", 303)


def _form(request: Request, onward: str, *, wrong: bool) -> Response:
    page = render_login(form_token(request, "/login"), onward, wrong=wrong)
    return HTMLResponse(page, 403 if wrong else 200)


ROUTES = [
    Route("/login", _login_page, methods=["GET"]),
    Route("/login", _enter, methods=["POST"]),
    Route("/logout", _leave, methods=["POST"]),
]
