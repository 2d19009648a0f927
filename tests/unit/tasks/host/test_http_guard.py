"""The token is made once and for its owner alone; a name that is not ours is told from an address."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from models.errors import UsageError
from tasks.host.http_guard import bears_secret, host_name, is_loopback, names_us, own_names, token_of, token_path
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


@pytest.mark.parametrize(
    ("header", "any_address", "is_ours"),
    [
        ("localhost:80", False, True),
        ("ml.example.org", False, True),
        ("evil.example", True, False),
        ("192.168.1.7:80", True, True),
        ("192.168.1.7:80", False, False),
        ("127.0.0.1.evil.example", True, False),
    ],
)
def test_which_names_are_ours(header: str, any_address: bool, is_ours: bool) -> None:
    assert names_us(header, {"ml.example.org"}, any_address=any_address) is is_ours


def test_off_loopback_the_names_of_this_machine_are_ours() -> None:
    assert own_names("127.0.0.1", ["ML.example.org"]) == {"ml.example.org"}
    assert {"192.0.2.7", "ml.example.org"} < own_names("192.0.2.7", ["ML.example.org"])


@pytest.mark.parametrize(
    ("host", "is_ours"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False)]
)
def test_which_addresses_only_this_machine_reaches(host: str, is_ours: bool) -> None:
    assert is_loopback(host) is is_ours


def test_the_name_of_a_host_header() -> None:
    assert [host_name(text) for text in ("A.b:80", "[::1]:80", "[::1]", " x ")] == ["a.b", "::1", "::1", "x"]
