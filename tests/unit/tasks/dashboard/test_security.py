"""Sessions and forms are ours or refused, and a name that is not ours is told from an address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.dashboard.security import SESSION_S, AccessRules, gate
from tasks.host.workspace import Workspace

OPEN = AccessRules("127.0.0.1", "secret-of-this-workspace", "loopline_1")
SHUT = AccessRules("0.0.0.0", "secret-of-this-workspace", "loopline_1", frozenset({"ml.example.org"}))


@pytest.mark.parametrize("host", ["127.0.0.1:4300", "localhost", "LOCALHOST:1", "[::1]:4300"])
def test_loopback_goes_by_its_own_names(host: str) -> None:
    assert OPEN.is_ours(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "192.168.1.7", "localhost.evil:80", "[::2]"]
)
def test_another_name_is_not_ours(host: str) -> None:
    assert not OPEN.is_ours(host)


def test_elsewhere_any_address_is_ours_but_no_strange_name() -> None:
    assert SHUT.is_ours("192.168.1.7:4300")
    assert SHUT.is_ours("ml.example.org")
    assert not SHUT.is_ours("evil.example")


def test_a_session_counts_until_it_runs_out_and_only_as_it_was_given() -> None:
    session = SHUT.begin(logged_in=True, now=1000)
    assert SHUT.is_logged_in(session, now=1000 + SESSION_S)
    assert not SHUT.is_logged_in(session, now=1001 + SESSION_S)
    assert not SHUT.is_logged_in(session, now=0)
    assert not SHUT.is_logged_in(f"{session}x", now=1000)
    assert not SHUT.is_logged_in(session.replace("1000", "2000"), now=1000)


def test_a_session_without_the_token_is_not_logged_in_whatever_it_claims() -> None:
    session = SHUT.begin(logged_in=False, now=1000)
    assert SHUT.knows_session(session, now=1000)
    assert not SHUT.is_logged_in(session, now=1000)
    assert not SHUT.is_logged_in(session.replace("any.", "in.", 1), now=1000)


@given(st.text())
def test_no_made_up_cookie_is_a_session(cookie: str) -> None:
    assert not SHUT.knows_session(cookie)
    assert not SHUT.is_logged_in(f"in.{cookie}")


def test_a_form_counts_for_its_session_and_address_alone() -> None:
    mine, other = OPEN.begin(logged_in=False), OPEN.begin(logged_in=False)
    token = OPEN.form_token(mine, "/projects/a/rollback")
    assert OPEN.accepts_form(token, mine, "/projects/a/rollback")
    assert not OPEN.accepts_form(token, mine, "/projects/b/rollback")
    assert not OPEN.accepts_form(token, other, "/projects/a/rollback")
    assert not OPEN.accepts_form("", "", "/projects/a/rollback")
    assert not OPEN.accepts_form(OPEN.form_token("", "/x"), "", "/x")
    assert not OPEN.accepts_form("é", mine, "/projects/a/rollback")


def test_the_gate_knows_the_given_token(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_DASHBOARD_TOKEN", "long-enough-to-count")
    assert gate(workspace, "127.0.0.1").knows("long-enough-to-count")
    assert not gate(workspace, "127.0.0.1").knows("long-enough-to-counT")


def test_workspaces_do_not_share_their_cookie(workspace: Workspace) -> None:
    other = Workspace(workspace.root / "other")
    assert gate(workspace, "127.0.0.1").cookie != gate(other, "127.0.0.1").cookie


def test_the_token_is_not_shown(workspace: Workspace) -> None:
    made = gate(workspace, "127.0.0.1")
    assert made.token not in repr(made)
