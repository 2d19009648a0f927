"""HTTP guard: the workspace's tokens, a server's own Host names, and addresses of this machine alone.

A name that somebody else owns may be made to resolve here (DNS rebinding), so a Host that is not ours is refused.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import UsageError
from models.files import storing
from tasks.host.workspace import Workspace

DASHBOARD_TOKEN, SERVE_TOKEN, NODES_TOKEN = "LOOPLINE_DASHBOARD_TOKEN", "LOOPLINE_SERVE_TOKEN", "LOOPLINE_NODES_TOKEN"
"""Names of variables: who may promote, who may predict, and who may lend a machine are not the same."""
LEAST_TOKEN = 16
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""What a proxy adds: behind it stands somebody else than the one at this machine."""
CHALLENGE = 'Basic realm="loopline", charset="UTF-8"'
"""The `WWW-Authenticate` header of an answer 401, at which a browser asks for user and password (RFC 7617)."""


def names_us(host_header: str, names: Collection[str], *, any_address: bool) -> bool:
    """Whether a Host header names this server: a loopback name, one of `names`, or if allowed any IP address.

    An address cannot be rebound, only a name can.
    """
    name = host_name(host_header)
    return name in LOOPBACK_NAMES or name in names or (any_address and is_address(name))


def own_names(host: str, names: Iterable[str] = ()) -> frozenset[str]:
    """The names of a server that listens on `host`: those given, and off loopback this machine's."""
    own = set() if is_loopback(host) else {socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()}
    return frozenset({*own, *(name.lower() for name in names)})


def token_path(workspace: Workspace, variable: str = DASHBOARD_TOKEN) -> Path:
    """Path of the dashboard's or the server's token; only its owner can read it."""
    return workspace.state / ("serving" if variable == SERVE_TOKEN else "overview") / "token"


def environment_token(variable: str) -> str | None:
    """The token that a variable holds; None where it is not set.

    Raises:
        UsageError: It is too short to keep anybody out.
    """
    token = os.environ.get(variable, "").strip()
    return checked_token(token, variable) if token else None


def checked_token(token: str, name: str) -> str:
    """A token that is long enough.

    Raises:
        UsageError: It is too short to keep anybody out; says what `name` expects.
    """
    if len(token) < LEAST_TOKEN:
        raise UsageError(f"{name}: got {len(token)} characters, expected {LEAST_TOKEN} or more")
    return token


def token_of(workspace: Workspace, variable: str = DASHBOARD_TOKEN) -> str:
    """The token of DASHBOARD_TOKEN or SERVE_TOKEN, else the one in the workspace's file, made at first use.

    Raises:
        UsageError: The variable's is too short to keep anybody out.
        StoreError: The token's file cannot be written.
    """
    token = environment_token(variable)
    return secret_in(token_path(workspace, variable)) if token is None else token


def secret_in(path: Path, user: str = "") -> str:
    """The secret in a file that its owner alone can read, made at first use; `user` comes before a new one.

    Raises:
        StoreError: The file cannot be written.
    """
    with storing(path), contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    return _make_secret(path, user)


def _make_secret(path: Path, user: str) -> str:
    """A link makes it appear whole, and only for the first of several that make it at once."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(f"{user}{secrets.token_urlsafe(32)}\n")
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(new)
        finally:
            new.unlink(missing_ok=True)
        return path.read_text().strip()


def bears_secret(authorization: str, secret: str) -> bool:
    """Whether an Authorization header holds the secret `user:password` (HTTP Basic); compared in constant time."""
    scheme, _, credentials = authorization.partition(" ")
    expected = base64.b64encode(secret.encode())
    is_equal = hmac.compare_digest(credentials.strip().encode("utf-8", "surrogateescape"), expected)
    return is_equal and scheme.lower() == "basic"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in LOOPBACK_NAMES or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that the request comes from a page of another origin; programs send no such header.

    Args:
        headers: By name in lower case, or of any case where the mapping does not mind.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    return site in ("cross-site", "same-site") or (
        origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    )


def host_name(header: str) -> str:
    """The name in a Host header, without its port and brackets, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
