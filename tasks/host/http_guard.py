"""HTTP guard: the checks of Host, Origin and secret for all HTTP servers, and the files of the secrets.

An attacker can make a foreign name resolve to this machine (DNS rebinding), so foreign Host headers are refused.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import UsageError
from models.files import storing
from tasks.host.workspace import Workspace

DASHBOARD_TOKEN, SERVE_TOKEN = "LOOPLINE_DASHBOARD_TOKEN", "LOOPLINE_SERVE_TOKEN"
"""Environment variables of two separate tokens: to promote, and to predict."""
OVERVIEW_HOST, OVERVIEW_PROXY = "LOOPLINE_OVERVIEW_HOST", "LOOPLINE_OVERVIEW_PROXY"
"""Environment variables of the overview page: where it listens; `elsewhere` if a proxy on another machine asks it."""
LEAST_TOKEN = 16
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
"""Headers that a proxy adds: the client behind it is not on this machine."""
CHALLENGE = 'Basic realm="loopline", charset="UTF-8"'
"""The `WWW-Authenticate` header of a 401 response; a browser then asks for user and password (RFC 7617)."""


class AccessRules:
    """A server's own Host names, its tokens, and whether it needs them.

    Args:
        host: The address that the server listens on.
        tokens: The valid tokens.
        names: Further Host names, such as a proxy's.
    """

    def __init__(self, host: str, tokens: Iterable[str], names: Iterable[str] = ()) -> None:
        machine = () if is_loopback(host) else (socket.gethostname(), socket.getfqdn(), host)
        further = list(names)
        self.is_open = is_loopback(host) and not further
        """Whether no token is needed: on loopback without further names, no other machine reaches the server."""
        self._names = LOOPBACK_NAMES | {name.lower() for name in (*machine, *further)}
        self._digests = [_digest(token) for token in tokens]

    def names_us(self, host_header: str) -> bool:
        """Return whether a Host header names this server: a name of ours, or unless `is_open` any IP address.

        IP addresses are safe, because only names can be rebound.
        """
        name = host_name(host_header)
        return name in self._names or (not self.is_open and is_address(name))

    def known(self, token: str) -> bytes | None:
        """Return the hash of a valid token, else None."""
        digest = _digest(token)
        is_known = False
        for token_digest in self._digests:  # compare with all tokens, so that the response time reveals nothing
            is_known |= hmac.compare_digest(token_digest, digest)
        return digest if is_known else None

    def bearer(self, authorization: str) -> bytes | None:
        """Return the hash of the valid token in an Authorization header `Bearer TOKEN`, else None."""
        scheme, _, token = authorization.partition(" ")
        return self.known(token.strip()) if scheme.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


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


def check_reach(host: str, option: str, *, has_proxy: bool, cure: str) -> None:
    """Refuse to listen where other machines reach a server, unless a proxy on another machine stands before it.

    Args:
        host: The address to listen on.
        option: The option or variable that named it.
        has_proxy: Whether the user said that a proxy stands there.
        cure: How to say so.

    Raises:
        UsageError: Other machines reach the address.
    """
    if has_proxy or is_loopback(host):
        return
    raise UsageError(
        f"{option}: got {host}, which other machines reach, expected a loopback address: slow clients and floods are "
        f"for nginx to drop. Start it on this machine with infra/nginx/loopline.conf, or say {cure} if a proxy on "
        "another machine does that"
    )


def overview_host() -> str:
    """Return the address at which the overview page listens.

    Raises:
        UsageError: Other machines reach it, and no proxy is said to stand before it.
    """
    host = os.environ.get(OVERVIEW_HOST, "127.0.0.1")
    has_proxy = os.environ.get(OVERVIEW_PROXY) == "elsewhere"
    check_reach(host, OVERVIEW_HOST, has_proxy=has_proxy, cure=f"{OVERVIEW_PROXY}=elsewhere")
    return host


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Return whether a proxy forwarded a request; `headers` as for `is_foreign`."""
    return not FORWARDED.isdisjoint(headers)


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
