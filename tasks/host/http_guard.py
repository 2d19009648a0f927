"""HTTP guard: the workspace's tokens, a server's own Host names, and checks for loopback addresses.

An attacker can make a foreign name resolve to this machine (DNS rebinding), so foreign Host headers are refused.
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
"""Environment variables of three separate tokens: to promote, to predict, and to join a training with a machine."""
LEAST_TOKEN = 16
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that a proxy adds: the client behind it is not on this machine."""
CHALLENGE = 'Basic realm="loopline", charset="UTF-8"'
"""The `WWW-Authenticate` header of a 401 response; a browser then asks for user and password (RFC 7617)."""


def names_us(host_header: str, names: Collection[str], *, any_address: bool) -> bool:
    """Return whether a Host header names this server: a loopback name, one of `names`, or with `any_address` any IP.

    IP addresses are safe, because only names can be rebound.
    """
    name = host_name(host_header)
    return name in LOOPBACK_NAMES or name in names or (any_address and is_address(name))


def own_names(host: str, names: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a server that listens on `host`: `names`, and unless on loopback this machine's names."""
    own = set() if is_loopback(host) else {socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()}
    return frozenset({*own, *(name.lower() for name in names)})


def token_path(workspace: Workspace, variable: str = DASHBOARD_TOKEN) -> Path:
    """Return the file of the workspace's dashboard or server token; only its owner can read it."""
    return workspace.state / ("serving" if variable == SERVE_TOKEN else "overview") / "token"


def environment_token(variable: str) -> str | None:
    """Return the token in an environment variable, or None if the variable is not set.

    Raises:
        UsageError: The token is too short to be safe.
    """
    token = os.environ.get(variable, "").strip()
    return checked_token(token, variable) if token else None


def checked_token(token: str, name: str) -> str:
    """Return the token if it is long enough.

    Raises:
        UsageError: The token is too short to be safe; the message names `name`.
    """
    if len(token) < LEAST_TOKEN:
        raise UsageError(f"{name}: got {len(token)} characters, expected {LEAST_TOKEN} or more")
    return token


def token_of(workspace: Workspace, variable: str = DASHBOARD_TOKEN) -> str:
    """Return the token of DASHBOARD_TOKEN or SERVE_TOKEN, else the one in the workspace's file, made at first use.

    Raises:
        UsageError: The variable's token is too short to be safe.
        StoreError: The token's file cannot be written.
    """
    token = environment_token(variable)
    return secret_in(token_path(workspace, variable)) if token is None else token


def secret_in(path: Path, user: str = "") -> str:
    """Return the secret in a file that only its owner can read; a new one, made at first use, begins with `user`.

    Raises:
        StoreError: The file cannot be written.
    """
    with storing(path), contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    return _make_secret(path, user)


def _make_secret(path: Path, user: str) -> str:
    """Create a secret file atomically with a hard link; of several processes, only the first one's secret is used."""
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
    """Return whether an Authorization header has the secret `user:password` (HTTP Basic), in constant time."""
    scheme, _, credentials = authorization.partition(" ")
    expected = base64.b64encode(secret.encode())
    is_equal = hmac.compare_digest(credentials.strip().encode("utf-8", "surrogateescape"), expected)
    return is_equal and scheme.lower() == "basic"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return host in LOOPBACK_NAMES or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Return whether the headers of a browser show a page of another origin; other programs do not send these headers.

    Args:
        headers: Headers by lower-case name, or a case-insensitive mapping.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    return site in ("cross-site", "same-site") or (
        origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    )


def host_name(header: str) -> str:
    """Return the name in a Host header, without its port and brackets, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_address(name: str) -> bool:
    """Return whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
