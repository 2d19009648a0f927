"""The tools' stores: one environment for all tools, and stores initialised once, under a lock."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from models.errors import StoreError, UsageError
from models.files import write_text
from models.installation import adding
from tasks.host import sqlite_files
from tasks.host.http_guard import LOOPBACK_NAMES
from tasks.host.server_access import credentials, elsewhere
from tasks.host.store_addresses import ROOT, store_addresses, without_password
from tasks.host.workspace import Project, Workspace

LOCK_TIMEOUT_S = 120.0

# Columns of MLflow's tables with paths of artifacts (mlflow 3).
PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)

# No telemetry, little output. For Prefect: JSON instead of pickles; leases on disk, which survive a server's restart;
# bigger batches, so that SQLite does not lock (measured with prefect 3.8.8); deletion of runs after 30 days, while the
# loops' own records stay.
QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "ORT_DISABLE_TELEMETRY": "1",  # read on import: `onnxruntime.disable_telemetry_events` comes too late (1.31.1)
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "10",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86400),
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "100",
}


CONNECT_TIMEOUT_S = "10"
"""Seconds to wait for a Postgres that does not answer: the driver's default is more than two minutes."""
HEARTBEAT = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"
HEARTBEAT_S = "30"
"""Seconds between the heartbeats of a flow run, by which a Prefect server elsewhere notices runs of lost machines."""


POLL = "LOOPLINE_POLL_S"
POLL_S = 3.0
"""Seconds between the worker's questions for runs; two a second were 60 % of what an idle platform used."""
PREFETCH_S = 10.0
LONGEST_POLL_S = 60.0
SERVICE_POLLS, SERVICE_S = 20, 60.0
"""Polls, and seconds at most, between the looks of Prefect's services for what is rare: late runs, questions that
nobody answered, tasks of cancelled runs, and clean-up that a worker has not confirmed."""
SERVICES = ("LATE_RUNS", "PAUSE_EXPIRATIONS", "CANCELLATION_CLEANUP", "CLEANUP_RECONCILER")


def polling(environ: Mapping[str, str]) -> dict[str, str]:
    """Return how often an idle platform looks for work, as Prefect's settings, from LOOPLINE_POLL_S.

    Runs are fetched at least one poll ahead, and their processes wait for their time: else they would start late.

    Raises:
        UsageError: LOOPLINE_POLL_S is not a number of seconds.
    """
    text = environ.get(POLL) or str(POLL_S)
    try:
        poll_s = float(text)
    except ValueError:
        poll_s = math.nan
    if not 0 < poll_s <= LONGEST_POLL_S:
        raise UsageError(f"{POLL}: got {text!r}, expected seconds above 0 and up to {LONGEST_POLL_S:g}, such as 3")
    service_s = min(SERVICE_S, SERVICE_POLLS * poll_s)
    return {
        "PREFECT_WORKER_QUERY_SECONDS": f"{poll_s:g}",
        "PREFECT_WORKER_PREFETCH_SECONDS": f"{max(PREFETCH_S, 2 * poll_s):g}",
        **{f"PREFECT_SERVER_SERVICES_{service}_LOOP_SECONDS": f"{service_s:g}" for service in SERVICES},
        "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": f"PT{math.ceil(service_s)}S",
    }


def environment(workspace: Workspace) -> dict[str, str]:
    """Return the environment of every tool in this workspace; the user's own settings take precedence.

    Raises:
        UsageError: The user has set an address of a store that cannot be used.
    """
    state = workspace.state
    defaults = {
        "PREFECT_HOME": str(state / "prefect"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{_own_database(workspace)}",
        "DVC_GLOBAL_CONFIG_DIR": str(state / "dvc" / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(state / "dvc" / "system"),
        "DVC_SITE_CACHE_DIR": str(workspace.site_cache),
        "MPLCONFIGDIR": str(state / "cache" / "matplotlib"),
        "TORCHINDUCTOR_CACHE_DIR": str(state / "cache" / "torchinductor"),
        "PGCONNECT_TIMEOUT": CONNECT_TIMEOUT_S,
        **polling(os.environ),
        HEARTBEAT: HEARTBEAT_S if "prefect" in elsewhere(workspace) else "",
    }
    chosen = {key: os.environ[key] for key in (*defaults, *QUIET) if os.environ.get(key)}
    settings = {**defaults, **QUIET, **chosen, **store_addresses(os.environ)}
    secret = credentials(workspace, {**os.environ, **settings})
    return {key: value for key, value in {**settings, **secret, **_past_proxies()}.items() if value}


def _past_proxies() -> dict[str, str]:
    """Return `no_proxy` variables, so that this machine's own servers are reached directly; empty without a proxy."""
    if not _proxies():
        return {}
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    spared = ",".join(dict.fromkeys(name.strip() for name in (*hosts, *sorted(LOOPBACK_NAMES)) if name.strip()))
    return {"no_proxy": spared, "NO_PROXY": spared}


def _proxies() -> dict[str, str]:
    names = [name for name in os.environ if name.lower().endswith("_proxy") and name.lower() != "no_proxy"]
    return {name: os.environ[name] for name in names if os.environ[name]}


def _refuse_socks_unheard() -> None:
    for name, value in _proxies().items():
        if value.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise UsageError(
                f"{name}: got {value}, and httpx speaks to a SOCKS proxy only with the package socksio: "
                f"{adding('socksio', 'pysocks')}, or unset {name}"
            )


def configure(workspace: Workspace) -> None:
    """Make the workspace's state folder, and set this process's environment, before any of the tools is imported.

    Raises:
        StoreError: The workspace was moved, and its tracking store cannot be updated.
        UsageError: The environment names a proxy, or an address of a store, that the tools cannot use.
    """
    _refuse_socks_unheard()
    with contextlib.suppress(OSError, StoreError):  # what cannot be written can be read
        workspace.make()
    os.environ.update(environment(workspace))
    _follow_move(workspace)


def open_workspace() -> Workspace:
    """Return this process's workspace, after `configure`."""
    workspace = Workspace.find()
    configure(workspace)
    return workspace


def open_project(name: str) -> Project:
    """Return a project of this process's workspace, after `configure`."""
    return open_workspace().project(name)


def is_embedded(uri: str) -> bool:
    """Return whether a tracking URI names an SQLite file rather than a server or database elsewhere."""
    return uri.startswith("sqlite:///")


def database_file(uri: str) -> Path:
    """Return the file of a `sqlite:///` URI."""
    return Path(uri.removeprefix("sqlite:///"))


def has_file(uri: str) -> bool:
    """Return whether the file of a `sqlite:///` URI holds anything; SQLite makes an empty one where it is missing."""
    path = database_file(uri)
    return path.exists() and path.stat().st_size > 0


def changed(uri: str) -> float:
    """Return when the file of a `sqlite:///` URI, or its write-ahead log, changed last: Unix time; 0: there is none."""
    path = database_file(uri)
    times = [file.stat().st_mtime for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    return max(times, default=0.0)


def name_of(workspace: Workspace, uri: str) -> str:
    """Return the tracking store's name in records: `own`, wherever the workspace is, or an address without password."""
    return "own" if uri == f"sqlite:///{_own_database(workspace)}" else without_password(uri)


def artifact_root(workspace: Workspace) -> Path:
    """Return the artifact folder of embedded MLflow."""
    return workspace.state / "mlflow" / "artifacts"


def artifact_address(workspace: Workspace, uri: str) -> str | None:
    """Return where MLflow puts the artifacts of a tracking URI: at the root, or on this disk beside its own file.

    None for a server, which has its own place, and for a database without LOOPLINE_ROOT: MLflow's default applies.
    """
    if uri.startswith(("http", "databricks")):
        return None
    root = os.environ.get(ROOT)
    if root:
        return f"{root.rstrip('/')}/mlflow"
    return artifact_root(workspace).as_uri() if is_embedded(uri) else None


def _own_database(workspace: Workspace) -> Path:
    return workspace.state / "mlflow" / "mlflow.db"


def initialised_mark(workspace: Workspace) -> Path:
    """Return the file that marks the store as initialised and holds its artifact folder at that time."""
    return workspace.state / "mlflow" / "initialised"


@contextlib.contextmanager
def mlflow_lock(workspace: Workspace) -> Iterator[None]:
    """Hold the lock of the embedded tracking store.

    Raises:
        StoreError: Another process holds the lock for more than two minutes.
    """
    import filelock

    lock = workspace.locks / "mlflow.lock"
    try:
        with filelock.FileLock(lock, timeout=LOCK_TIMEOUT_S):
            yield
    except filelock.Timeout as error:
        raise StoreError(
            f"{lock}: held by another process for {LOCK_TIMEOUT_S:g} s: wait for that process or end it, then run again"
        ) from error


def _follow_move(workspace: Workspace) -> None:
    """Update the artifact paths in the own store after a move of the workspace: MLflow stores absolute paths."""
    mark, now, database = initialised_mark(workspace), artifact_root(workspace), _own_database(workspace)
    if not mark.exists() or _marked(mark) == now or not database.exists():
        return
    with (
        contextlib.suppress(OSError),
        mlflow_lock(workspace),
    ):  # a read-only store can still be read; a later write raises its own error
        before = _marked(mark)
        try:
            _rewrite(database, before, now)
        except sqlite3.Error as error:
            place = f"{database}: cannot be updated after the move from {before}"
            raise sqlite_files.store_error(place, error, "put it back from a copy") from error
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
