"""What stands before every page, asked without a server."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from tasks.dashboard.app import application
from tasks.dashboard.guard import API_BYTES, FORM_BYTES, HEADERS, DashboardGuard
from tasks.dashboard.session import LOGGED_IN
from tasks.host import database
from tasks.host.http_guard import AccessRules, token_of
from tasks.host.workspace import Workspace
from tasks.operations import overview

TOKEN = "secret-of-this-workspace"
OPEN = AccessRules("127.0.0.1", [TOKEN])
SHUT = AccessRules("192.0.2.7", [TOKEN])
BEARER = {"authorization": f"Bearer {TOKEN}"}
IN = {LOGGED_IN: True}


def ask(
    rules: AccessRules,
    path: str = "/",
    method: str = "GET",
    chunks: Sequence[bytes] = (),
    session: dict[str, Any] | None = None,
    **headers: str,
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer; the application behind the guard reads the body and says yes."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        try:
            await Request(scope, receive).body()
            answer = PlainTextResponse("yes")
        except HTTPException as error:
            answer = PlainTextResponse(error.detail, error.status_code)
        await answer(scope, receive, send)

    named = {"host": "127.0.0.1:4300" if rules.is_open else "192.0.2.7:4300", **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 4300),
        "session": session or {},
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()],
    }
    sent: list[dict[str, Any]] = []
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(DashboardGuard(application, rules)(scope, receive, send))
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_every_answer_forbids_foreign_scripts_frames_and_guessing() -> None:
    for headers in ({}, {"host": "evil.example"}):
        _, found = ask(OPEN, **headers)
        assert "default-src 'none'" in found["content-security-policy"]
        assert "script-src 'self';" in found["content-security-policy"]
        assert "unsafe" not in found["content-security-policy"]
        assert found["x-frame-options"] == "DENY"
        assert found["x-content-type-options"] == "nosniff"
        assert found["cache-control"] == "no-store"


async def answer_of(workspace: Workspace, path: str = "/") -> httpx.Response:
    """The front page, or what a program with the token gets from another path."""
    transport = httpx.ASGITransport(application(workspace, "127.0.0.1"), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {token_of(workspace)}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        return await (client.get(path) if path == "/" else client.post(path, json={}))


def test_a_state_database_that_a_newer_loopline_migrated_is_named_with_the_cure(workspace: Workspace) -> None:
    with database.writing(workspace.state) as connection:
        connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    answer = asyncio.run(answer_of(workspace))
    assert answer.status_code == 503
    assert "has schema 9999" in answer.text
    assert "restart what still runs of it (`loopline down`" in answer.text
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    api = asyncio.run(answer_of(workspace, "/trigger/flights"))
    assert (api.status_code, "has schema 9999" in api.json()["error"]) == (503, True)


def test_a_program_gets_what_was_wrong_as_json(workspace: Workspace) -> None:
    answer = asyncio.run(answer_of(workspace, "/trigger/none"))
    assert (answer.status_code, answer.json()) == (404, {"error": "There is no project of that name."})


def test_the_page_of_an_internal_error_has_the_same_headers(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(overview, "overview", fail)
    monkeypatch.setattr(overview, "project_named", fail)
    answer = asyncio.run(answer_of(workspace))
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    api = asyncio.run(answer_of(workspace, "/trigger/flights"))
    assert (api.status_code, api.json()) == (500, {"error": "The log of this page's service says what."})
    assert {name: api.headers.get(name) for name in HEADERS} == HEADERS


def test_a_host_that_is_not_ours_is_refused_even_with_the_token() -> None:
    assert ask(OPEN, **{**BEARER, "host": "evil.example"})[0] == 421


def test_on_loopback_the_token_is_asked_too_of_people_and_of_programs() -> None:
    assert ask(OPEN)[0] == 401
    assert [ask(OPEN, path)[0] for path in ("/health", "/style.css", "/login")] == [200, 200, 200]
    assert [ask(OPEN, "/projects/a/retrain", method)[0] for method in ("GET", "POST")] == [401, 401]
    assert [ask(OPEN, "/projects/a/retrain", method, session=IN)[0] for method in ("GET", "POST")] == [200, 200]
    assert ask(OPEN, "/trigger/flights", "POST")[0] == 401
    assert ask(OPEN, "/trigger/flights", "POST", **BEARER)[0] == 200
    assert ask(OPEN, "/trigger/flights", "POST", authorization="Bearer wrong")[0] == 401
    assert ask(OPEN, "/trigger/flights", "POST", session=IN)[0] == 401


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded", "x_real_ip", "x_forwarded_host"])
def test_behind_a_proxy_the_token_is_asked_on_loopback_too(header: str) -> None:
    assert ask(OPEN, **{header: "203.0.113.7"})[0] == 401
    assert ask(OPEN, **{header: "203.0.113.7"}, **BEARER)[0] == 200


def test_a_page_that_has_another_name_is_meant_for_others_and_asks_the_token() -> None:
    named = AccessRules("127.0.0.1", [TOKEN], ["ml.example.org"])
    assert ask(named, host="ml.example.org")[0] == 401
    assert ask(named, host="ml.example.org", **BEARER)[0] == 200


def test_elsewhere_nothing_but_the_login_is_shown_without_the_token() -> None:
    assert [ask(SHUT, path)[0] for path in ("/health", "/style.css", "/login")] == [200, 200, 200]
    assert ask(SHUT, "/projects/a")[0] == 401
    status, headers = ask(SHUT, "/projects/a", accept="text/html")
    assert (status, headers["location"]) == (303, "/login?next=/projects/a")
    assert ask(SHUT, **BEARER)[0] == 200
    assert ask(SHUT, session=IN)[0] == 200
    assert ask(SHUT, session={"key": "of a form"})[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_form_from_another_site_is_refused(headers: dict[str, str]) -> None:
    assert ask(OPEN, "/projects/a/rollback", "POST", **headers)[0] == 403


def test_a_form_from_our_own_page_passes() -> None:
    ours = {"origin": "http://127.0.0.1:4300", "sec_fetch_site": "same-origin"}
    assert ask(OPEN, "/x", "POST", session=IN, **ours)[0] == 200


@pytest.mark.parametrize(("path", "most"), [("/x", FORM_BYTES), ("/trigger/a", API_BYTES)])
def test_a_body_that_is_too_large_is_refused_said_or_unsaid(path: str, most: int) -> None:
    assert ask(OPEN, path, "POST", **BEARER, content_length=str(most + 1))[0] == 413
    assert ask(OPEN, path, "POST", [b"x" * most, b"x"], **BEARER)[0] == 413
    assert ask(OPEN, path, "POST", [b"x" * most], **BEARER, content_length=str(most))[0] == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "", "x"])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    assert ask(OPEN, "/x", "POST", content_length=length)[0] == 413
