"""Sessions and forms are ours or refused, until they run out; a login leads to no other site."""

import asyncio
import re
import time
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tasks.dashboard.session import (
    LOGGED_IN,
    ROUTES,
    SESSION_S,
    Sessions,
    checked_form,
    cookie_of,
    form_token,
    logout_token,
    safe_next,
)
from tasks.host.http_guard import AccessRules
from tasks.host.workspace import Workspace

TOKEN = "secret-of-this-workspace"


class Browser:
    """Asks an application that shows who is logged in, and keeps its cookie as a browser does.

    Args:
        host: Where the application listens.
        url: The page's origin, as the browser sees it.
        token: The workspace's token.
    """

    def __init__(self, host: str = "192.0.2.7", url: str = "http://192.0.2.7", token: str = TOKEN) -> None:
        def show(request: Request) -> Response:
            return PlainTextResponse(f"{bool(request.session.get(LOGGED_IN))} {logout_token(request)}")

        async def press(request: Request) -> Response:
            await checked_form(request)
            return PlainTextResponse("pressed")

        def give(request: Request) -> Response:
            return PlainTextResponse(form_token(request, request.url.path))

        buttons = [Route("/{name}", give), Route("/{name}", press, methods=["POST"])]
        app = Starlette(
            routes=[Route("/", show), *ROUTES, *buttons], middleware=[Middleware(Sessions, token=token, cookie="c")]
        )
        app.state.rules = AccessRules(host, [token])
        self._app, self._url, self.cookie, self.set_cookie = app, url, "", ""

    def ask(self, path: str, fields: dict[str, str] | None = None) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url=self._url) as client:
                method = "GET" if fields is None else "POST"
                return await client.request(method, path, data=fields, headers={"cookie": f"c={self.cookie}"})

        answer = asyncio.run(asked())
        self.set_cookie = answer.headers.get("set-cookie", "")
        if self.set_cookie:
            self.cookie = self.set_cookie.partition(";")[0].removeprefix("c=")
        return answer

    def log_in(self, secret: str = TOKEN) -> int:
        (token,) = re.findall(r'name="token" value="([^"]*)"', self.ask("/login").text)
        return self.ask("/login", {"token": token, "secret": secret}).status_code

    def is_in(self) -> bool:
        return self.ask("/").text.startswith("True")


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def move(now: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now)

    return move


def test_a_login_counts_until_it_runs_out_however_often_it_is_used(at: Callable[[float], None]) -> None:
    browser = Browser()
    at(1000)
    assert browser.log_in() == 303
    for now, is_in in ((1000, True), (1000 + SESSION_S, True), (1001 + SESSION_S, False), (0, False)):
        cookie = browser.cookie
        at(now)
        assert browser.is_in() is is_in
        browser.cookie = cookie


def test_a_login_needs_the_token_and_begins_another_session() -> None:
    browser = Browser()
    form = browser.ask("/rollback").text
    assert (browser.log_in("wrong"), browser.is_in()) == (403, False)
    before = browser.cookie
    assert (browser.log_in(f" {TOKEN} "), browser.is_in()) == (303, True)
    assert browser.ask("/rollback", {"token": form}).status_code == 403, "a form of the session before"
    browser.cookie = before
    assert not browser.is_in()


def test_a_logout_ends_the_session_if_our_own_page_sends_it() -> None:
    browser = Browser()
    browser.log_in()
    token = browser.ask("/").text.partition(" ")[2]
    assert browser.ask("/logout", {"token": "0" * 64}).status_code == 403
    assert browser.is_in()
    assert browser.ask("/logout", {"token": token}).headers["location"] == "/login"
    assert "expires=Thu, 01 Jan 1970" in browser.set_cookie
    assert not browser.is_in()


def test_a_cookie_counts_only_as_it_was_given_and_for_one_workspace() -> None:
    browser, other = Browser(), Browser(token="secret-of-another-workspace")
    browser.log_in()
    body, stamp, signature = browser.cookie.split(".")
    for changed in (f"{browser.cookie}x", f"{body}.{stamp}", f"{body}x.{stamp}.{signature}", f"{body}.a.{signature}"):
        browser.cookie = changed
        assert not browser.is_in()
    other.cookie = f"{body}.{stamp}.{signature}"
    assert not other.is_in()


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_no_made_up_cookie_is_a_session(cookie: str) -> None:
    browser = Browser()
    browser.cookie = cookie
    assert not browser.is_in()


def test_workspaces_do_not_share_their_cookie(workspace: Workspace) -> None:
    assert cookie_of(workspace) != cookie_of(Workspace(workspace.root / "other"))


def test_a_form_counts_for_its_session_and_address_alone() -> None:
    mine, other, fresh = Browser(), Browser(), Browser()
    token = mine.ask("/rollback").text
    other.ask("/rollback")
    assert mine.ask("/rollback", {"token": token}).text == "pressed"
    for browser, path, sent in (
        (mine, "/promote", token),
        (mine, "/rollback", "\u00e9"),
        (mine, "/rollback", ""),
        (other, "/rollback", token),
        (fresh, "/rollback", token),
        (fresh, "/rollback", ""),
    ):
        assert browser.ask(path, {"token": sent}).status_code == 403
    assert mine.ask("/rollback", {}).status_code == 403


def test_no_script_and_no_other_sites_form_gets_the_cookie_and_a_proxy_with_tls_keeps_it_there() -> None:
    plain, secure = Browser(), Browser(url="https://ml.example.org")
    for browser in (plain, secure):
        browser.ask("/")
        assert {"httponly", "samesite=lax", "path=/", f"max-age={SESSION_S}"} <= set(
            browser.set_cookie.lower().split("; ")
        )
    assert "secure" not in plain.set_cookie.split("; ")
    assert "secure" in secure.set_cookie.split("; ")


def test_pages_opened_side_by_side_share_the_session_of_the_first() -> None:
    browser = Browser("127.0.0.1")
    browser.ask("/")
    assert browser.set_cookie
    browser.ask("/rollback")
    assert not browser.set_cookie
    away = Browser()
    away.log_in()
    away.ask("/")
    assert not away.set_cookie


@pytest.mark.parametrize(
    "address", ["//evil.example", "http://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\nb"]
)
def test_a_login_leads_nowhere_else(address: str) -> None:
    assert safe_next(address) == "/"


@given(st.text())
def test_a_login_leads_on_to_paths_of_ours_alone(address: str) -> None:
    onward = safe_next(address)
    assert onward.startswith("/")
    assert not onward.startswith(("//", "/\\"))


def test_a_login_leads_back() -> None:
    assert safe_next("/projects/a") == "/projects/a"
