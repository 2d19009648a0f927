"""Access control for every protocol: Host, token, rate limit. HTTP uses the middleware, gRPC calls `admit`.

On loopback only this machine can reach the server, so no token is required, unless the platform runs the server; but
labels become training rows, so `/feedback` requires one. On other addresses each request needs a token, unless the
server's TLS requires client certificates. A request that a proxy forwarded counts as a request from another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.files import storing
from models.serving.http_errors import RequestError
from tasks.host.http_guard import SERVE_TOKEN, AccessRules, checked_token, is_loopback, token_of
from tasks.host.workspace import Workspace
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import SharedNumber
from tasks.serve.rate_limit import RateLimiter

REMOTE_RATE = 1000.0


class AccessControl:
    """Decides whether a request is admitted.

    Args:
        host: The address that the server listens on.
        tokens: The valid tokens.
        names: Additional Host names.
        is_certified: Whether TLS requires client certificates.
        needs_token: Whether loopback requires a token too.
        rate: Requests a second for each token, or for each address if no token is required; None for no limit.
        shared: The file in which several workers count requests together; see `RateLimiter`.
        num_servers: How many servers divide the rate; see `RateLimiter`.
    """

    def __init__(
        self,
        host: str,
        tokens: Sequence[str],
        names: Sequence[str] = (),
        *,
        is_certified: bool = False,
        needs_token: bool = False,
        rate: float | None = None,
        shared: Path | None = None,
        num_servers: SharedNumber | None = None,
    ) -> None:
        self._rules = AccessRules(host, tokens, names)
        self.is_open = is_certified or (self._rules.is_open and not needs_token)
        self._is_certified = is_certified
        self._buckets = RateLimiter(rate, shared, num_servers) if rate else None
        self._known_hosts: set[str] = set()
        self._callers: dict[str, str] = {}

    @classmethod
    def of(cls, settings: ServerSettings) -> AccessControl:
        """Build the access control from the server's settings.

        Raises:
            UsageError: A token is too short to be safe.
            StoreError: The tokens cannot be read or created.
        """
        remote = bool(settings.names) or not is_loopback(settings.host)
        rate = settings.rate if settings.rate is not None else REMOTE_RATE if remote else None
        certified = settings.tls_client_ca is not None
        tokens = tokens_of(settings.workspace)
        shared = settings.rates_path if settings.workers > 1 else None
        return cls(
            settings.host,
            tokens,
            settings.names,
            is_certified=certified,
            needs_token=settings.needs_token,
            rate=rate,
            shared=shared,
            num_servers=SharedNumber(settings.servers_path) if rate else None,
        )

    def check_host(self, header: str) -> None:
        """Check the Host header against the server's names.

        Raises:
            RequestError: 421, the header is empty or names another server (DNS rebinding).
        """
        if header in self._known_hosts:
            return
        if not self._rules.names_us(header):
            raise RequestError(
                421, "the Host header names another server: ask by a name of this one, or start it with --name"
            )
        if len(self._known_hosts) < 100:
            self._known_hosts.add(header)

    def admit(
        self,
        authorization: str,
        client: str,
        *,
        is_forwarded: bool = False,
        is_foreign: bool = False,
        is_feedback: bool = False,
    ) -> None:
        """Check the token and the rate limit of a request.

        Args:
            authorization: `Bearer TOKEN` from the HTTP header or the gRPC metadata; empty for none.
            client: The client's address.
            is_forwarded: Whether a proxy forwarded the request.
            is_foreign: Whether a page of another site sent the request. Such requests are refused if no token is
                required. A required token protects by itself: browsers do not add it on their own.
            is_feedback: Whether the request brings labels, which always needs a token or a certificate.

        Raises:
            RequestError: 401, the token is missing or wrong; 403, sent from another site; 429, too many requests.
        """
        if self.is_open and not is_forwarded and (self._is_certified or not is_feedback):
            if is_foreign:
                raise RequestError(
                    403, "a page of another site sends this: ask from no page, or from one of this server's own"
                )
            if self._buckets is not None:
                self._buckets.take(client)
            return
        caller = self._callers.get(authorization) or self._caller_of(authorization)
        if self._buckets is not None:
            self._buckets.take(caller)

    def _caller_of(self, authorization: str) -> str:
        """Return the hash of the token in a header, and remember the header of a valid one."""
        digest = self._rules.bearer(authorization)
        if digest is None:
            raise RequestError(
                401,
                "a token is needed: send `Authorization: Bearer TOKEN`; it lies in .loopline/serving/token",
                {"www-authenticate": "Bearer"},
            )
        if len(self._callers) < 100:
            self._callers[authorization] = digest.hex()
        return digest.hex()


def tokens_of(workspace: Workspace) -> list[str]:
    """Return the server's token and those in `.loopline/serving/tokens`: one token a line, followed by a note.

    Raises:
        UsageError: A token is too short to be safe.
        StoreError: The file cannot be read.
    """
    path = workspace.state / "serving" / "tokens"
    tokens = [token_of(workspace, SERVE_TOKEN)]
    if path.exists():
        with storing(path):
            lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            token = line.split("#")[0].split()[:1]
            tokens += [checked_token(value, f"{path}:{number}: token") for value in token]
    return tokens
