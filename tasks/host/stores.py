"""The addresses of the tools' stores: one environment for all tools; stores are initialised once, under a lock."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from models.errors import StoreError, UsageError
from models.files import write_text
from tasks.host.server_access import credentials
from tasks.host.store_addresses import store_addresses, without_password
from tasks.host.workspace import Workspace

LOCK_TIMEOUT_S = 120.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")

# Where MLflow's tables hold the paths of artifacts (mlflow 3).
PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)

# Offline and quiet. Prefect's: JSON instead of pickles; leases on disk outlive a server's restart; bigger batches keep
# SQLite from locking (measured with prefect 3.8.8); it forgets its runs after 30 days, the loops' own records stay.
QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_WORKER_QUERY_SECONDS": "0.5",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86400),
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}


def environment(workspace: Workspace) -> dict[str, str]:
    """The environment every tool is run with in this workspace; what the user has set wins.

    Raises:
        UsageError: The user has set an address of a store that cannot be used.
    """
    state = workspace.state
    own = {
        "PREFECT_HOME": str(state / "prefect"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{_own_database(workspace)}",
        "DVC_GLOBAL_CONFIG_DIR": str(state / "dvc" / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(state / "dvc" / "system"),
        "DVC_SITE_CACHE_DIR": str(state / "dvc" / "site"),
        "MPLCONFIGDIR": str(state / "cache" / "matplotlib"),
    }
    chosen = {key: os.environ[key] for key in (*own, *QUIET) if os.environ.get(key)}
    settings = {**own, **QUIET, **chosen, **store_addresses(os.environ)}
    secret = credentials(workspace, {**os.environ, **settings})
    return {key: value for key, value in {**settings, **secret, **_past_proxies()}.items() if value}


def _past_proxies() -> dict[str, str]:
    """Exclude our own servers from the proxy that the environment names."""
    if not _proxies():
        return {}
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    spared = ",".join(dict.fromkeys(name.strip() for name in (*hosts, *LOOPBACK) if name.strip()))
    return {"no_proxy": spared, "NO_PROXY": spared}


def _proxies() -> dict[str, str]:
    names = [name for name in os.environ if name.lower().endswith("_proxy") and name.lower() != "no_proxy"]
    return {name: os.environ[name] for name in names if os.environ[name]}


def _refuse_socks_unheard() -> None:
    for name, value in _proxies().items():
        if value.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise UsageError(
                f"{name}: got {value}, and httpx speaks to a SOCKS proxy only with the package socksio: "
                f"`{sys.executable} -m pip install socksio pysocks`, or unset {name}"
            )


def configure(workspace: Workspace) -> None:
    """Set this process's environment, before any of the tools is imported.

    Raises:
        StoreError: The workspace was moved, and its tracking store cannot be updated.
        UsageError: The environment names a proxy, or an address of a store, that the tools cannot use.
    """
    _refuse_socks_unheard()
    os.environ.update(environment(workspace))
    _follow_move(workspace)


def is_embedded(uri: str) -> bool:
    """Whether a tracking URI names the workspace's own file rather than a server or database elsewhere."""
    return uri.startswith("sqlite:///")


def database_file(uri: str) -> Path:
    """The file behind a `sqlite:///` URI."""
    return Path(uri.removeprefix("sqlite:///"))


def name_of(workspace: Workspace, uri: str) -> str:
    """The name of the tracking store in records: `own`, wherever the workspace is, or its address without password."""
    return "own" if uri == f"sqlite:///{_own_database(workspace)}" else without_password(uri)


def artifact_root(workspace: Workspace) -> Path:
    """The folder in which embedded MLflow stores artifacts."""
    return workspace.state / "mlflow" / "artifacts"


def _own_database(workspace: Workspace) -> Path:
    return workspace.state / "mlflow" / "mlflow.db"


def initialised_mark(workspace: Workspace) -> Path:
    """The file that notes that the store was made, and where its artifacts were then."""
    return workspace.state / "mlflow" / "initialised"


@contextlib.contextmanager
def mlflow_lock(workspace: Workspace) -> Iterator[None]:
    """The lock of the embedded tracking store.

    Raises:
        StoreError: It is held for more than two minutes.
    """
    import filelock

    lock = workspace.locks / "mlflow.lock"
    try:
        with filelock.FileLock(lock, timeout=LOCK_TIMEOUT_S):
            yield
    except filelock.Timeout as error:
        raise StoreError(f"{lock}: held by another process for {LOCK_TIMEOUT_S:g} s") from error


def _follow_move(workspace: Workspace) -> None:
    """Tell the own store where its artifacts lie: MLflow keeps whole paths, and a workspace may be moved."""
    mark, now, database = initialised_mark(workspace), artifact_root(workspace), _own_database(workspace)
    if not mark.exists() or _marked(mark) == now or not database.exists():
        return
    with (
        contextlib.suppress(OSError),
        mlflow_lock(workspace),
    ):  # read-only: may be read; who must write will say so
        before = _marked(mark)
        try:
            _rewrite(database, before, now)
        except sqlite3.Error as error:
            raise StoreError(f"{database}: cannot be told that it was moved from {before}: {error}") from error
        write_text(mark, f"{now}\n")


def _rewrite(database: Path, before: Path, now: Path) -> None:
    with contextlib.closing(sqlite3.connect(database, timeout=LOCK_TIMEOUT_S)) as connection, connection:
        for old, new in ((str(before), str(now)), (before.as_uri(), now.as_uri())):
            for table, column in PLACES:
                moved = f"UPDATE {table} SET {column} = ? || substr({column}, ?)"  # noqa: S608 - names of ours
                which = f"substr({column}, 1, ?) = ?"
                after = len(old) + 1
                connection.execute(f"{moved} WHERE {which}", (new, after, after, f"{old}/"))


def _marked(mark: Path) -> Path:
    text = mark.read_text().strip()
    return database_file(text).parent / "artifacts" if is_embedded(text) else Path(text)
