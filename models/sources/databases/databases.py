"""The kinds of databases, by the scheme of their address, and what goes wrong with all of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from models.errors import DataError, LooplineError, StoreError, UsageError, one_line
from models.installation import repairing
from models.sources.address import expanded, without_secrets
from models.sources.databases.database import Database, OpenDatabase
from models.sources.databases.duck import DUCKDB
from models.sources.databases.mysql import MYSQL
from models.sources.databases.postgres import POSTGRES
from models.sources.databases.sqlite import SQLITE

DATABASES = {
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "sqlite": SQLITE,
    "duckdb": DUCKDB,
}


class _Trouble(NamedTuple):
    """What databases say, and what to do; `is_away` if the same query may be answered later."""

    pattern: str
    cure: str
    is_away: bool = False


_NOT_WELL_FORMED = "the address is not well formed: write special characters of user and password as %XX"
_TROUBLES = (
    _Trouble(
        r"certificate.verify.failed|root certificate file|does not match host name|hostname mismatch",
        "its certificate is not trusted here, or is of another host: name the authority's file in the address "
        "(sslrootcert=FILE, of MySQL ssl_ca=FILE), and the host as its certificate does",
        True,
    ),
    _Trouble(
        r"does(n't| not) support (it|SSL)\b",
        "it has no TLS: ask who runs it, or leave the arguments of TLS out where the way to it is safe",
        True,
    ),
    _Trouble(
        r"no pg_hba.conf entry|insecure transport",
        "it lets this user in with TLS alone, or not from here: write sslmode=require (of MySQL ssl_ca=FILE), or ask "
        "who runs it",
        True,
    ),
    _Trouble(
        r"invalid sslmode|invalid URI query parameter|certificate file .*not|\[Errno 2\]|NO_CERTIFICATE_OR_CRL",
        "an argument of the address is wrong: correct what stands behind its `?`, and the files that it names",
    ),
    _Trouble(
        r"authentication failed|no password supplied|Access denied|role .* does not exist",
        "its user or password is wrong: correct the variable",
        True,
    ),
    _Trouble(
        r"translate host name|Name or service not known|getaddrinfo|name resolution",
        "there is no such host: correct it",
        True,
    ),
    _Trouble(
        r"statement timeout|max_statement_time|maximum statement execution time|read operation timed out|\(timed out\)",
        "the query took too long: make it lighter (an index, fewer rows), or try again when the server is less busy",
        True,
    ),
    _Trouble(
        r"Connection refused|timeout expired|timed out|unreachable|No route to host|Can't connect",
        "nothing answers there: correct host and port, or try again when it is up",
        True,
    ),
    _Trouble(
        r"server closed the connection|Lost connection|terminating connection|no connection to|gone away|SSL SYSCALL",
        "the connection broke: nothing was stored; run again",
        True,
    ),
    _Trouble(
        r"database is locked|Could not set lock|Conflicting lock",
        "another program writes into it: try again when it is done",
        True,
    ),
    _Trouble(
        r'database ".*" does not exist|Unknown database|open database|not a valid DuckDB|file is not a database',
        "there is no such database: correct the end of the address",
    ),
    _Trouble(
        r'relation ".*" does not exist|no such table|Table .* doesn\'t exist|Table with name',
        "there is no such table: correct the query",
    ),
    _Trouble(
        r"column .* does not exist|no such column|Unknown column|Referenced column",
        "there is no such column: correct the query",
    ),
    _Trouble(
        r"Duplicate column name|is ambiguous", "several columns share a name: give each its own, as in `a.id as a_id`"
    ),
    _Trouble(r"permission denied|command denied", "its user may not read that: grant select to it"),
    _Trouble(
        r"unexpected spaces|invalid (port|percent|URI)|could not parse",
        _NOT_WELL_FORMED,
    ),
    _Trouble(
        r"operations are disabled", "a query reads its own database alone: load the file into it, or name the file"
    ),
    _Trouble(r"read.?only|data-modifying", "a source is only read: write a query that changes nothing"),
    _Trouble(
        r"syntax|unterminated|Parser Error|multiple commands|incomplete input|unrecognized token",
        "the query is no SQL of this database: correct it",
    ),
)


def database_of(url: str, text: str) -> Database:
    """Return the kind of an address.

    Raises:
        UsageError: There is no such kind, or its library is missing.
    """
    scheme = url.partition("://")[0].partition("+")[0].lower()
    if scheme not in DATABASES or "://" not in url:
        kinds = ", ".join(f"{name}:" for name in DATABASES)
        got = scheme if re.fullmatch(r"[a-z][a-z0-9.]*", scheme) and "://" in url else "no scheme"
        raise UsageError(
            f"data.source: {text}: got {got}, expected an address of {kinds} such as postgresql://host/name"
        )
    database = DATABASES[scheme]
    if find_spec(database.library) is None:
        raise UsageError(f"data.source: {text}: needs {database.library}, which is not installed: {repairing()}")
    return database


@contextlib.contextmanager
def opened(address: str, base: Path, text: str) -> Iterator[tuple[Database, OpenDatabase]]:
    """Open the database at an address; whatever it says becomes one line with a cure, without a secret.

    Args:
        address: The address as the spec says it.
        base: The folder of the spec.
        text: The name of the source in messages.

    Raises:
        UsageError: A variable is not set, or the address is none of a database.
        StoreError: It cannot be reached, or broke off.
        DataError: The query, or a column of it, cannot be read.
    """
    url = expanded(address)
    database = database_of(url, text)
    if database.file(url, base) is None and _is_cut(url):
        raise DataError(f"data.source: {text}: {_NOT_WELL_FORMED}")
    try:
        with database.connect(url, base) as session:
            yield database, session
    except DataError as error:
        raise DataError(f"data.source: {text}: {hidden(str(error), address)}") from error
    except LooplineError:
        raise
    except Exception as error:  # noqa: BLE001 - the drivers share no class of errors
        raise _explained(error, address, text) from None  # a library's message may hold the password


def _is_cut(url: str) -> bool:
    """Return whether a sign such as `/` ends the password of an address early: a driver would tell a part of it."""
    place, rest = re.match(r"[^:]*://([^/?#]*)(.*)", url, re.DOTALL).groups()  # type: ignore[union-attr]
    is_behind = "@" in rest if "@" not in place and ":" in place else "@" in rest.partition("?")[0]
    return place.count("@") > 1 or is_behind


def hidden(message: str, address: str) -> str:
    """Return a message without the values of an address's variables, and without its password."""
    message = without_secrets(message, address)
    with contextlib.suppress(ValueError, UsageError):
        password = urlsplit(expanded(address)).password or ""
        for spelling in {password, unquote(password)} - {""}:
            message = message.replace(spelling, "***")
    return message


def _explained(error: Exception, address: str, text: str) -> LooplineError:
    message = str(error)
    reason = hidden(one_line(re.sub(r"\n\s*(Query was|query): .*", "", message, flags=re.DOTALL), 200), address)
    position = dict(getattr(error, "details", None) or {}).get(b"PG_DIAG_STATEMENT_POSITION")
    if position:
        reason += f", at character {int(position)} of the query"
    for trouble in _TROUBLES:
        if re.search(trouble.pattern, message, re.IGNORECASE):
            return (StoreError if trouble.is_away else DataError)(f"data.source: {text}: {trouble.cure} ({reason})")
    return DataError(f"data.source: {text}: the query failed: correct it, or ask who runs the database ({reason})")
