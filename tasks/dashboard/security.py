"""Access rules of the dashboard: token, session, form token, and the server's own Host names.

A page in another tab can send forms to an address on this machine, and its owner can make a name resolve to this
machine (DNS rebinding). So each form carries its own token, API calls need the bearer token even on loopback, and
foreign Host headers are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tasks.host.http_guard import is_loopback, names_us, own_names, token_of
from tasks.host.workspace import Workspace

SESSION_S = 7 * 86400.0
CLOCK_S = 60.0  # tolerance: a clock may be set back a little


@dataclass(frozen=True)
class AccessRules:
    """The values that decide on access; `cookie` differs between workspaces, because they share a host's cookies."""

    host: str
    token: str = field(repr=False)
    cookie: str
    names: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether no login is needed: on loopback without further names, nobody else can reach the page."""
        return is_loopback(self.host) and not self.names

    def is_ours(self, host_header: str) -> bool:
        """Return whether a Host header names this server; see `names_us`."""
        return names_us(host_header, self.names, any_address=not self.is_open)

    def knows(self, token: str) -> bool:
        """Return whether the token is right, in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def begin(self, *, logged_in: bool, now: float | None = None) -> str:
        """Return a new session as the cookie's value: its kind, a random id, the time of issue, and our signature."""
        body = f"{'in' if logged_in else 'any'}.{secrets.token_urlsafe(18)}.{int(time.time() if now is None else now)}"
        return f"{body}.{self._sign('session', body)}"

    def knows_session(self, cookie: str, now: float | None = None) -> bool:
        """Return whether a cookie is a valid session of this server that has not expired."""
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", body).encode()):
            return False
        age_s = (time.time() if now is None else now) - int(body.rpartition(".")[2])
        return -CLOCK_S <= age_s <= SESSION_S

    def is_logged_in(self, cookie: str, now: float | None = None) -> bool:
        """Return whether a cookie is the session of a person who entered the token."""
        return cookie.startswith("in.") and self.knows_session(cookie, now)

    def form_token(self, cookie: str, path: str) -> str:
        """Return the token that a form of this session must carry to post to `path`."""
        return self._sign("form", f"{cookie}|{path}")

    def accepts_form(self, token: str, cookie: str, path: str) -> bool:
        """Return whether a form's token was issued for this session and path."""
        return self.knows_session(cookie) and hmac.compare_digest(
            token.encode(), self.form_token(cookie, path).encode()
        )

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"loopline|{purpose}|{text}".encode(), hashlib.sha256).hexdigest()


def gate(workspace: Workspace, host: str, names: Iterable[str] = ()) -> AccessRules:
    """Return the access rules of a server that listens on `host`; `names` are further Host names, such as a proxy's.

    Raises:
        UsageError: LOOPLINE_DASHBOARD_TOKEN is too short to be safe.
        StoreError: The token's file cannot be written.
    """
    mark = hashlib.sha256(str(workspace.root).encode()).hexdigest()[:8]
    return AccessRules(host, token_of(workspace), f"loopline_{mark}", own_names(host, names))
