"""Access rules of the dashboard: token, session, form token, and the Host names that are ours.

A page in another tab may send forms to an address on this machine, and its domain may resolve to this machine (DNS
rebinding). So each form carries a CSRF token, API calls carry the bearer token even on loopback, and foreign Host
headers are rejected.
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
CLOCK_S = 60.0  # a clock may be set back a little


@dataclass(frozen=True)
class AccessRules:
    """Decides whether a request is allowed; `cookie` differs between workspaces, which share a host's cookies."""

    host: str
    token: str = field(repr=False)
    cookie: str
    names: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether no login is needed: on loopback, under its own names, nobody else can reach the page."""
        return is_loopback(self.host) and not self.names

    def is_ours(self, host_header: str) -> bool:
        """Whether a Host header names this server; see `names_us`."""
        return names_us(host_header, self.names, any_address=not self.is_open)

    def knows(self, token: str) -> bool:
        """Whether it is the token, in a time that does not depend on where it differs."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def begin(self, *, logged_in: bool, now: float | None = None) -> str:
        """A new session as the cookie's value: what it is, a random id, when it was issued, and our signature."""
        body = f"{'in' if logged_in else 'any'}.{secrets.token_urlsafe(18)}.{int(time.time() if now is None else now)}"
        return f"{body}.{self._sign('session', body)}"

    def knows_session(self, cookie: str, now: float | None = None) -> bool:
        """Whether a cookie is a session of ours that has not run out."""
        body, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", body).encode()):
            return False
        age_s = (time.time() if now is None else now) - int(body.rpartition(".")[2])
        return -CLOCK_S <= age_s <= SESSION_S

    def is_logged_in(self, cookie: str, now: float | None = None) -> bool:
        """Whether a cookie is a valid session."""
        return cookie.startswith("in.") and self.knows_session(cookie, now)

    def form_token(self, cookie: str, path: str) -> str:
        """The CSRF token of forms that post to `path` in this session."""
        return self._sign("form", f"{cookie}|{path}")

    def accepts_form(self, token: str, cookie: str, path: str) -> bool:
        """Whether a form's token was given out for this session and path."""
        return self.knows_session(cookie) and hmac.compare_digest(
            token.encode(), self.form_token(cookie, path).encode()
        )

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"loopline|{purpose}|{text}".encode(), hashlib.sha256).hexdigest()


def gate(workspace: Workspace, host: str, names: Iterable[str] = ()) -> AccessRules:
    """The gate of a page that listens on `host`; `names` are further Host names, such as a proxy's.

    Raises:
        UsageError: LOOPLINE_DASHBOARD_TOKEN is too short to keep anybody out.
        StoreError: The token's file cannot be written.
    """
    mark = hashlib.sha256(str(workspace.root).encode()).hexdigest()[:8]
    return AccessRules(host, token_of(workspace), f"loopline_{mark}", own_names(host, names))
