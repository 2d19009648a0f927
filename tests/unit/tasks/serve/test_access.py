"""Who is let in: by name, by token, by rate."""

from dataclasses import replace

import pytest

from models.errors import UsageError
from models.serving.http_errors import RequestError
from tasks.host.http_guard import DASHBOARD_TOKEN, SERVE_TOKEN, token_of
from tasks.host.workspace import Workspace
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedNumber
from tasks.serve.access import AccessControl, tokens_of

TOKEN, OTHER = "the-token-of-this-server", "one-for-the-other-team"
HOME = AccessControl("127.0.0.1", [TOKEN])
AWAY = AccessControl("0.0.0.0", [TOKEN, OTHER], ["ml.example.org"])


def status_of(access: AccessControl, authorization: str = "", **more: bool) -> int:
    try:
        access.admit(authorization, "192.0.2.7", **more)
    except RequestError as refusal:
        return refusal.status
    return 200


def test_on_loopback_no_token_is_asked_but_of_who_comes_through_a_proxy() -> None:
    assert status_of(HOME) == 200
    assert status_of(HOME, is_forwarded=True) == 401
    assert status_of(HOME, f"Bearer {TOKEN}", is_forwarded=True) == 200


def test_labels_need_a_token_on_loopback_too_or_a_certificate() -> None:
    assert status_of(HOME, is_feedback=True) == 401
    assert status_of(HOME, f"Bearer {TOKEN}", is_feedback=True) == 200
    assert status_of(AccessControl("127.0.0.1", [TOKEN], is_certified=True), is_feedback=True) == 200


def test_the_platforms_server_asks_for_a_token_on_loopback_too() -> None:
    access = AccessControl("127.0.0.1", [TOKEN], needs_token=True)
    assert status_of(access) == 401
    assert status_of(access, f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer {OTHER}", 200),
        ("", 401),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer ", 401),
        ("Bearer \udcff", 401),
    ],
)
def test_elsewhere_a_token_is_asked(authorization: str, status: int) -> None:
    assert status_of(AWAY, authorization) == status


def test_a_client_with_a_certificate_needs_no_token() -> None:
    assert status_of(AccessControl("0.0.0.0", [TOKEN], is_certified=True)) == 200


@pytest.mark.parametrize(
    ("access", "host", "is_let_in"),
    [
        (HOME, "127.0.0.1:8000", True),
        (HOME, "localhost", True),
        (HOME, "rebound.example", False),
        (HOME, "", False),
        (HOME, "192.0.2.7", False),
        (AWAY, "192.0.2.7:8000", True),
        (AWAY, "ML.example.org", True),
        (AWAY, "rebound.example", False),
    ],
)
def test_a_host_that_is_not_ours_is_refused_again_and_again(access: AccessControl, host: str, is_let_in: bool) -> None:
    for _ in range(2):
        if is_let_in:
            access.check_host(host)
        else:
            with pytest.raises(RequestError) as refused:
                access.check_host(host)
            assert refused.value.status == 421


def test_the_rate_counts_for_a_token_and_not_for_a_wrong_one() -> None:
    access = AccessControl("0.0.0.0", [TOKEN, OTHER], rate=1.0)
    assert [status_of(access, f"Bearer {token}") for token in ("wrong" * 4, TOKEN, TOKEN, OTHER)] == [
        401,
        200,
        429,
        200,
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_rate_of_a_server_is_divided_by_the_live_ones(workspace: Workspace, workers: int) -> None:
    settings = ServerSettings(str(workspace.root), ("tiny",), rate=4.0, workers=workers)
    access = AccessControl.of(settings)
    SharedNumber(settings.servers_path).set(2)  # by the parent process
    assert [status_of(access) for _ in range(3)] == [200, 200, 429]


def test_further_tokens_stand_in_a_file(workspace: Workspace) -> None:
    assert tokens_of(workspace) == [token_of(workspace, SERVE_TOKEN)]
    path = workspace.state / "serving" / "tokens"
    path.write_text(f"# teams\n{OTHER}  # the other team\n\n{TOKEN} ours\n")
    assert tokens_of(workspace) == [token_of(workspace, SERVE_TOKEN), OTHER, TOKEN]
    path.write_text("short\n")
    with pytest.raises(UsageError, match="tokens:1: token: got 5 characters, expected 16 or more"):
        tokens_of(workspace)


def test_the_access_of_a_server_is_as_it_was_started(workspace: Workspace) -> None:
    home = ServerSettings(str(workspace.root), ("tiny",))
    assert status_of(AccessControl.of(home)) == 200
    away = replace(home, host="0.0.0.0")
    assert status_of(AccessControl.of(away)) == 401
    assert status_of(AccessControl.of(away), f"Bearer {token_of(workspace, SERVE_TOKEN)}") == 200
    assert status_of(AccessControl.of(away), f"Bearer {token_of(workspace, DASHBOARD_TOKEN)}") == 401
    assert status_of(AccessControl.of(replace(away, tls_client_ca="ca.pem"))) == 200
    behind = AccessControl.of(replace(home, names=("ml.example.org",)))
    assert status_of(behind) == 401
    rates = [access._buckets is not None for access in (AccessControl.of(home), behind, AccessControl.of(away))]
    assert rates == [False, True, True]
