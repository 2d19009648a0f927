"""The addresses of stores elsewhere, checked and normalised where the environment is read.

For the usual `postgresql://`, SQLAlchemy needs psycopg2, which is not installed; so the installed driver is added to
the address. Addresses that no tool can open are refused before anything runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from models.errors import UsageError

TRACKING_URI = "MLFLOW_TRACKING_URI"
OPTUNA_STORAGE = "LOOPLINE_OPTUNA_STORAGE"
PREFECT_DATABASE = "PREFECT_API_DATABASE_CONNECTION_URL"
PREFECT_API = "PREFECT_API_URL"
STATE_URL = "LOOPLINE_STATE_URL"
ROOT = "LOOPLINE_ROOT"
MIGRATE_TO = "--to"
"""The option of `loopline migrate`."""

_SERVERS = ("http", "https")
_ACCEPTED: Mapping[str, tuple[str, ...]] = {
    TRACKING_URI: (*_SERVERS, "postgresql", "mysql", "mssql", "sqlite", "databricks", "file"),
    OPTUNA_STORAGE: ("postgresql", "mysql", "mssql", "oracle", "sqlite"),
    PREFECT_DATABASE: ("postgresql", "sqlite"),
    PREFECT_API: _SERVERS,
    STATE_URL: ("postgresql",),
    ROOT: ("s3", "file"),
    MIGRATE_TO: ("postgresql",),
}
"""The kinds of address that each variable's tool can open (mlflow 3, optuna 4, prefect 3)."""
_NOT_SQL = (*_SERVERS, "databricks", "file", "s3")
_POSTGRES_DRIVER = {PREFECT_DATABASE: "asyncpg"}
_EXAMPLES = {
    PREFECT_API: "http://host:4200/api",
    TRACKING_URI: "http://host:5000 or postgresql://user@host/mlflow",
    ROOT: "s3://bucket/prefix or file:///folder",
}
_SHARED = (STATE_URL, TRACKING_URI, OPTUNA_STORAGE)
"""What must be named with a root on S3: by default it stands in `.loopline/`, which is then a mere cache."""
_SCHEME = re.compile(r"(?P<dialect>\w+)(\+(?P<driver>\w+))?://.")


def store_addresses(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses in the environment, each with an installed driver.

    Raises:
        UsageError: A tool cannot open its address, the address's driver is not installed, or bytes are to be on S3
            while the state database, the tracking store or the studies are files of this machine.
    """
    addresses = {name: normalised(name, environ[name]) for name in _ACCEPTED if environ.get(name)}
    root = addresses.get(ROOT, "")
    missing = [name for name in _SHARED if addresses.get(name, "sqlite").startswith(("sqlite", "file"))]
    if root.startswith("s3") and missing:
        names, settings = (
            " and ".join(missing),
            ", ".join(f"{name}=postgresql://user@host/database" for name in missing),
        )
        raise UsageError(
            f"{ROOT}: got {without_password(root)}, with {names} on this machine's disk, expected databases or servers "
            f"that other machines reach: set {settings} (docs/how-to/no-shared-disk.md)"
        )
    return addresses


@functools.cache
def normalised(name: str, address: str) -> str:
    """Return the normalised address of one variable; see `store_addresses`."""
    parts = _SCHEME.match(address)
    dialect = parts["dialect"] if parts else address
    dialect = "postgresql" if dialect == "postgres" else dialect
    is_relative = name == ROOT and dialect == "file" and not address.startswith("file:///")
    if dialect not in _ACCEPTED[name] or is_relative or not (parts or dialect == "databricks"):
        example = _EXAMPLES.get(name, "postgresql://user@host/database")
        kinds = ", ".join(f"{kind}://" for kind in _ACCEPTED[name])
        unset = "" if name == MIGRATE_TO else f", or unset {name}"
        raise UsageError(f"{name}: got {without_password(address)}, expected {kinds}: as {example}{unset}")
    if parts is None or dialect in _NOT_SQL:
        return address
    driver = parts["driver"]
    if dialect == "postgresql":
        driver = driver or _POSTGRES_DRIVER.get(name, "psycopg")
    if dialect != "sqlite":
        address = f"{dialect}{f'+{driver}' if driver else ''}://{address.partition('://')[2]}"
        _check_driver(name, address)
    return _for_asyncpg(address) if (name, driver) == (PREFECT_DATABASE, "asyncpg") else address


def without_password(address: str) -> str:
    """Return an address for display, without user and password."""
    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _for_asyncpg(address: str) -> str:
    """Return the address with the parameters of libpq that asyncpg knows by another name, or not at all."""
    from sqlalchemy.engine import make_url

    url = make_url(address)
    mode = url.query.get("sslmode")
    url = url.difference_update_query(("sslmode", "connect_timeout", "application_name"))
    url = url.update_query_dict({"ssl": mode}) if mode else url
    return url.render_as_string(hide_password=False)


def _check_driver(name: str, address: str) -> None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    address_shown = without_password(address)
    try:
        make_url(address).get_dialect().import_dbapi()
    except ImportError as error:
        raise UsageError(
            f"{name}: got {address_shown}, and its driver is not installed ({error}): install it"
        ) from error
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"{name}: got {address_shown}, expected an address that SQLAlchemy reads: {error}") from error
