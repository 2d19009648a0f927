"""What stands before every address, asked without a server."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from models.serving.http_errors import RequestError
from tasks.release.settings import ServerSettings
from tasks.serve import request_context
from tasks.serve.access import AccessControl
from tasks.serve.middleware import SMALL_BYTES, BodyLimits, ServerMiddleware
from tasks.serve.state import WorkerState

TOKEN = "the-token-of-this-server"
HOST = {"host": "127.0.0.1:8000"}
MOST = 4 * SMALL_BYTES


@dataclass
class Met:
    """What a caller got."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    counted: list[tuple[str, str, int]] = field(default_factory=list)


def ask(
    chunks: list[bytes] | None = None,
    answering: Callable[[Request], Any] | None = None,
    access: AccessControl | None = None,
    path: str = "/invocations",
    without_host: str = "",
    method: str = "POST",
    is_ending: bool = False,
    **headers: str,
) -> Met:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        body = await request.body()
        if answering is not None:
            answering(request)
        await Response(str(len(body)))(scope, receive, send)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            met.status = message["status"]
            met.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"]:
            met.body = json.loads(message["body"])

    left = list([b""] if chunks is None else chunks)

    async def receive() -> Any:
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or headers.get("cut") == "yes"}

    met = Met()
    state = WorkerState(
        ServerSettings("/nowhere", ("tiny",), most_bytes=MOST), {}, {}, access or AccessControl("127.0.0.1", [TOKEN])
    )
    state.is_ending = is_ending
    door = ServerMiddleware(application, state, {})
    given = {**({} if without_host else HOST), **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    scope = {
        "type": "http", "method": method, "path": path, "headers": raw, "client": ("192.0.2.7", 1),
        "http_version": without_host or "1.1", "query_string": b"",
    }  # fmt: skip
    asyncio.run(door(scope, receive, send))
    met.counted = list(state.metrics._passed)
    return met


def test_what_is_let_in_is_answered_and_counted() -> None:
    met = ask([b"abc"], content_length="3")
    assert (met.status, met.body, met.counted) == (200, 3, [("", "", 200)])


@pytest.mark.parametrize(
    ("headers", "status"), [({"host": "evil.example"}, 421), ({"x_forwarded_for": "1.2.3.4"}, 401)]
)
def test_what_is_not_let_in_is_said_as_json(headers: dict[str, str], status: int) -> None:
    met = ask([b"abc"], **headers)
    assert (met.status, met.counted) == (status, [("", "", status)])
    assert set(met.body) == {"error"}
    assert met.headers["content-type"] == "application/json"


def test_a_body_that_uvicorn_takes_for_another_protocol_is_refused() -> None:
    refused = ask([b""], upgrade="h2c", content_length="3")
    assert (refused.status, refused.headers["connection"]) == (400, "close")
    assert "HTTP/1.1 alone" in refused.body["error"]
    assert ask(method="GET", upgrade="h2c").status == 200


def test_a_client_that_waits_before_it_sends_its_body_is_told_that_none_is_wanted() -> None:
    refused = ask([], host="evil.example", expect="100-continue", content_length="3")
    assert (refused.status, refused.headers["connection"]) == (421, "close")


def test_while_the_server_ends_each_answer_is_the_last_of_its_connection() -> None:
    assert "connection" not in ask().headers
    met = ask(is_ending=True)
    assert (met.status, met.headers["connection"]) == (200, "close")


def test_a_request_that_names_two_hosts_is_refused() -> None:
    """RFC 9112, section 3.2."""
    assert ask(Host="127.0.0.1").status == 400


FOREIGN = {"origin": "https://evil.example", "sec_fetch_site": "cross-site"}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_a_page_of_another_site_sends_is_refused_where_no_token_is_asked(name: str) -> None:
    foreign = {name: FOREIGN[name]}
    met = ask([b"[]"], **foreign)
    assert (met.status, met.counted) == (403, [("", "", 403)])
    assert "a page of another site" in met.body["error"]
    assert ask(method="GET", **foreign).status == 200, "it changes nothing"
    assert ask(path="/webhooks/mlflow", **foreign).status == 200, "it is signed"
    assert ask(access=AccessControl("0.0.0.0", [TOKEN]), authorization=f"Bearer {TOKEN}", **foreign).status == 200
    assert ask(origin=f"http://{HOST['host']}", sec_fetch_site="same-origin").status == 200


@pytest.mark.parametrize(
    ("path", "status"), [("/ping", 200), ("/health", 200), ("/v2/health/live", 200), ("/metrics", 401), ("/v2", 401)]
)
def test_off_loopback_only_the_probes_are_open(path: str, status: int) -> None:
    assert ask(access=AccessControl("0.0.0.0", [TOKEN]), path=path).status == status
    assert ask(access=AccessControl("0.0.0.0", [TOKEN]), path=path, authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize("headers", [{"content_length": str(MOST + 1)}, {"transfer_encoding": "chunked"}])
def test_a_body_that_is_too_large_is_refused_before_it_is_all_here(headers: dict[str, str]) -> None:
    met = ask([b"x" * SMALL_BYTES] * 100, **headers)
    assert met.status == 413
    assert f"larger than {MOST:,} bytes" in met.body["error"]


@pytest.mark.parametrize("headers", [{"content_length": str(MOST)}, {"transfer_encoding": "chunked"}])
def test_a_body_of_the_largest_size_is_taken(headers: dict[str, str]) -> None:
    assert ask([b"x" * SMALL_BYTES] * 4, **headers).body == MOST


def note(key: str) -> None:
    noted = request_context.current()
    noted.id, noted.model, noted.version = key, "tiny", "3"


def test_the_id_of_a_request_comes_back() -> None:
    assert ask(answering=lambda _: note("r7")).headers["x-request-id"] == "r7"
    met = ask(answering=lambda _: note("a\r\nb"))
    assert "x-request-id" not in met.headers
    assert met.counted == [("tiny", "3", 200)]


def test_the_callers_id_comes_back_with_a_refusal_too() -> None:
    assert ask(x_request_id="q1", x_loopline_timeout_ms="soon").headers["x-request-id"] == "q1"
    assert "x-request-id" not in ask(x_request_id="q" * 1000, x_loopline_timeout_ms="soon").headers


def test_only_an_old_client_may_leave_the_host_out() -> None:
    assert ask(host="").status == 421
    assert ask(without_host="1.0").status == 200
    met = ask(without_host="1.1")
    assert (met.status, met.body) == (400, {"error": "a request in HTTP/1.1 names its Host"})


def test_a_refusal_of_the_application_is_said_with_its_headers() -> None:
    def refuse(_: Request) -> None:
        raise RequestError(503, "busy", {"retry-after": "2"})

    met = ask(answering=refuse)
    assert (met.status, met.body, met.headers["retry-after"]) == (503, {"error": "busy"}, "2")


def test_a_fault_of_ours_is_not_told_but_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Request) -> None:
        raise ValueError("a secret of ours")

    met = ask(answering=fail)
    assert met.status == 500
    assert "secret" not in json.dumps(met.body)
    assert "secret" in caplog.text


def test_a_caller_who_leaves_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    met = ask([b"ab"], cut="yes", content_length="9")
    assert (met.status, met.counted) == (0, [("", "", 499)])
    assert "request failed" not in caplog.text


@pytest.mark.parametrize("value", ["", "soon", "-1", "1" * 10, "1.5"])
def test_a_deadline_that_is_no_number_is_refused(value: str) -> None:
    met = ask(x_loopline_timeout_ms=value)
    assert met.status == 400
    assert "expected milliseconds" in met.body["error"]


def test_a_deadline_is_noted() -> None:
    found: list[float] = []
    ask(answering=lambda _: found.append(request_context.current().until(None, 1e9)), x_loopline_timeout_ms="100")
    ask(answering=lambda _: found.append(request_context.current().until(None, 1e9)))
    assert 1e8 < found[1] - found[0] < 2e9


def test_all_large_bodies_together_may_be_eight_times_as_large_as_one() -> None:
    limits = BodyLimits(MOST)

    def read(size: int) -> bytes:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"x" * size, "more_body": False}

        return asyncio.run(limits.read(receive, None))

    bodies = [read(MOST) for _ in range(8)]
    with pytest.raises(RequestError, match="too much is being sent at once") as refused:
        read(SMALL_BYTES + 1)
    assert len(read(1)) == 1, "a small one is taken"
    assert refused.value.status == 503
    limits.release(bodies.pop())
    assert len(read(MOST)) == MOST, "what was refused is not held"
