"""The token is made once and for its owner alone; a name that is not ours is told from an address."""

import socket
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.errors import UsageError
from tasks.host.http_guard import (
    OVERVIEW_HOST,
    OVERVIEW_PROXY,
    AccessRules,
    bears_secret,
    host_name,
    is_forwarded,
    is_loopback,
    overview_host,
    token_of,
    token_path,
)
from tasks.host.workspace import Workspace


def test_the_token_is_made_once_for_its_owner_alone(workspace: Workspace) -> None:
    with ThreadPoolExecutor(8) as pool:
        (token,) = set(pool.map(token_of, [workspace] * 16))
    assert len(token) > 40
    assert stat.S_IMODE(token_path(workspace).stat().st_mode) == 0o600
    assert list(token_path(workspace).parent.iterdir()) == [token_path(workspace)]


def test_a_given_token_wins_and_must_keep_people_out(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_DASHBOARD_TOKEN", "long-enough-to-count")
    assert token_of(workspace) == "long-enough-to-count"
    monkeypatch.setenv("LOOPLINE_DASHBOARD_TOKEN", "short")
    with pytest.raises(UsageError, match="16 or more"):
        token_of(workspace)


@pytest.mark.parametrize(
    ("header", "is_let_in"),
    [
        ("Basic bG9vcGxpbmU6dGhlLXNlY3JldA==", True),
        ("basic  bG9vcGxpbmU6dGhlLXNlY3JldA==", True),
        ("Bearer bG9vcGxpbmU6dGhlLXNlY3JldA==", False),
        ("Basic loopline:the-secret", False),
        ("Basic", False),
        ("", False),
        ("Basic \udcff", False),
        ("Basic \u00e9", False),
    ],
)
def test_who_bears_the_secret_is_known_by_it_alone(header: str, is_let_in: bool) -> None:
    assert bears_secret(header, "loopline:the-secret") is is_let_in


HOME = AccessRules("127.0.0.1", ["secret-of-this-workspace"])
NAMED = AccessRules("127.0.0.1", ["secret-of-this-workspace"], ["ML.example.org"])
AWAY = AccessRules("0.0.0.0", ["secret-of-this-workspace"], ["ml.example.org"])


@pytest.mark.parametrize("header", ["127.0.0.1:4300", "localhost", "LOCALHOST:1", "[::1]:4300"])
def test_every_server_goes_by_the_names_of_loopback(header: str) -> None:
    assert HOME.names_us(header)
    assert NAMED.names_us(header)
    assert AWAY.names_us(header)


@pytest.mark.parametrize(
    "header", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "192.168.1.7.evil"]
)
def test_another_name_is_not_ours(header: str) -> None:
    assert not HOME.names_us(header)
    assert not NAMED.names_us(header)
    assert not AWAY.names_us(header)


@pytest.mark.parametrize("header", ["192.168.1.7:80", "[::2]"])
def test_an_address_is_ours_unless_nobody_else_reaches_the_server(header: str) -> None:
    assert not HOME.names_us(header)
    assert NAMED.names_us(header)
    assert AWAY.names_us(header)


def test_further_names_are_ours_and_off_loopback_those_of_this_machine() -> None:
    assert NAMED.names_us("ml.EXAMPLE.org:80")
    assert not HOME.names_us("ml.example.org")
    assert AccessRules("192.0.2.7", []).names_us(socket.gethostname())
    assert not NAMED.names_us("some-machine")


def test_only_a_server_on_loopback_without_further_names_needs_no_token() -> None:
    assert [rules.is_open for rules in (HOME, NAMED, AWAY)] == [True, False, False]


@pytest.mark.parametrize(
    ("header", "is_known"),
    [
        ("Bearer secret-of-this-workspace", True),
        ("bearer  secret-of-this-workspace ", True),
        ("Bearer secret-of-this-workspacE", False),
        ("Basic secret-of-this-workspace", False),
        ("secret-of-this-workspace", False),
        ("Bearer ", False),
        ("", False),
        ("Bearer \udcff", False),
    ],
)
def test_a_token_is_known_by_itself_alone(header: str, is_known: bool) -> None:
    assert (HOME.bearer(header) is not None) is is_known


def test_callers_with_different_tokens_are_told_apart_and_the_token_is_not_shown() -> None:
    rules = AccessRules("127.0.0.1", ["one-of-two-tokens", "two-of-two-tokens"])
    assert rules.known("one-of-two-tokens") != rules.known("two-of-two-tokens")
    assert "one-of-two-tokens" not in f"{rules!r} {vars(rules)} {rules.known('one-of-two-tokens')!r}"


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host"])
def test_a_proxy_shows_in_the_headers(name: str) -> None:
    assert is_forwarded({"host": "localhost", name: "203.0.113.7"})
    assert not is_forwarded({"host": "localhost"})


@pytest.mark.parametrize(
    ("host", "is_ours"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False)]
)
def test_which_addresses_only_this_machine_reaches(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_the_overview_page_listens_beyond_this_machine_only_for_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overview_host() == "127.0.0.1"
    monkeypatch.setenv(OVERVIEW_HOST, "0.0.0.0")
    with pytest.raises(UsageError, match=r"nginx to drop.*infra/nginx/loopline.conf, or say LOOPLINE_OVERVIEW_PROXY"):
        overview_host()
    monkeypatch.setenv(OVERVIEW_PROXY, "elsewhere")
    assert overview_host() == "0.0.0.0"


def test_the_name_of_a_host_header() -> None:
    assert [host_name(text) for text in ("A.b:80", "[::1]:80", "[::1]", " x ")] == ["a.b", "::1", "::1", "x"]
