"""One environment for every tool: inside the workspace unless the user says otherwise, quiet always."""

import os
from pathlib import Path
from urllib.request import proxy_bypass

import pytest
from psycopg.conninfo import timeout_from_conninfo

from models.errors import UsageError
from tasks.host import stores
from tasks.host.workspace import Workspace


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for key in stores.environment(Workspace(tmp_path)):
        monkeypatch.delenv(key, raising=False)
    return Workspace(tmp_path)


def test_everything_lies_in_the_workspace(clean: Workspace) -> None:
    told = stores.environment(clean)
    assert told["MLFLOW_TRACKING_URI"] == f"sqlite:///{clean.state}/mlflow/mlflow.db"
    assert told["PREFECT_HOME"].startswith(str(clean.state))
    assert told["DVC_SITE_CACHE_DIR"].startswith(str(clean.state))


def test_what_the_user_has_set_wins(clean: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org")
    assert stores.environment(clean)["MLFLOW_TRACKING_URI"] == "https://mlflow.example.org"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert stores.environment(clean)["MLFLOW_TRACKING_URI"].startswith("sqlite:///")


def test_runs_are_fetched_ahead_of_the_next_poll() -> None:
    usual, slow = stores.polling({}), stores.polling({stores.POLL: "15"})
    assert usual["PREFECT_WORKER_QUERY_SECONDS"] == "3"
    for settings in (usual, slow):
        poll_s, ahead_s = (float(settings[f"PREFECT_WORKER_{name}_SECONDS"]) for name in ("QUERY", "PREFETCH"))
        assert ahead_s >= 2 * poll_s


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "600"])
def test_a_poll_that_is_no_time_is_refused(clean: Workspace, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(stores.POLL, text)
    with pytest.raises(UsageError, match=f"LOOPLINE_POLL_S: got '{text}', expected seconds above 0 and up to 60"):
        stores.environment(clean)


def test_prefect_reads_each_setting_of_the_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.settings import Settings

    for name, value in stores.polling({}).items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.worker.query_seconds, settings.worker.prefetch_seconds) == (3, 10)
    services = [getattr(settings.server.services, name.lower()) for name in stores.SERVICES]
    assert [service.loop_seconds for service in services] == [60] * 4
    assert settings.server.events.proactive_granularity.total_seconds() == 60


def test_a_proxy_is_not_asked_for_servers_of_this_machine(clean: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert "no_proxy" not in stores.environment(clean)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", "corp.example.org, localhost")
    told = stores.environment(clean)
    assert told["no_proxy"] == told["NO_PROXY"] == "corp.example.org,localhost,127.0.0.1,::1"
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    assert [proxy_bypass(host) for host in ("127.0.0.1:4200", "localhost", "example.org")] == [True, True, False]


def test_a_proxy_that_httpx_cannot_use_is_told(clean: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    monkeypatch.setattr(stores.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"all_proxy: .*pip install .*socksio pysocks`, or unset all_proxy"):
        stores.configure(clean)


def test_whoever_opens_a_workspace_first_keeps_git_out_of_its_state(clean: Workspace) -> None:
    before = dict(os.environ)
    try:
        stores.configure(clean)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert (clean.state / ".gitignore").read_text() == "*\n"
    assert (clean.state / "layout").exists()


def test_a_postgres_that_does_not_answer_is_waited_for_ten_seconds(
    clean: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGCONNECT_TIMEOUT", "LOOPLINE_STATE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", stores.environment(clean)["PGCONNECT_TIMEOUT"])
    assert timeout_from_conninfo({"host": "h"}) == 10
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert stores.environment(clean)["PGCONNECT_TIMEOUT"] == "3"


@pytest.mark.parametrize(
    ("key", "off"),
    [
        ("DO_NOT_TRACK", "true"),
        ("DVC_NO_ANALYTICS", "1"),
        ("GX_ANALYTICS_ENABLED", "false"),
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("ORT_DISABLE_TELEMETRY", "1"),
        ("PREFECT_SERVER_ANALYTICS_ENABLED", "false"),
    ],
)
def test_telemetry_is_off(clean: Workspace, key: str, off: str) -> None:
    assert stores.environment(clean)[key] == off


def test_no_value_is_empty(clean: Workspace) -> None:
    assert all(stores.environment(clean).values())


def test_configure_sets_this_process(clean: Workspace) -> None:
    stores.configure(clean)
    assert os.environ["PREFECT_HOME"] == str(clean.state / "prefect")


@pytest.mark.parametrize(
    ("uri", "embedded"),
    [("sqlite:////a/mlflow.db", True), ("http://a", False), ("postgresql://u:p@h/db", False)],
)
def test_which_store_is_the_workspaces_own(uri: str, embedded: bool) -> None:
    assert stores.is_embedded(uri) is embedded


def test_the_file_behind_a_uri(clean: Workspace) -> None:
    uri = stores.environment(clean)["MLFLOW_TRACKING_URI"]
    assert stores.database_file(uri) == clean.state / "mlflow" / "mlflow.db"
