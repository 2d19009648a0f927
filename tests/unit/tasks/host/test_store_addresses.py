"""Addresses of stores elsewhere: usable as the guides write them, or refused with the cure."""

import pytest

from models.errors import UsageError
from tasks.host.store_addresses import (
    OPTUNA_STORAGE,
    PREFECT_API,
    PREFECT_DATABASE,
    ROOT,
    STATE_URL,
    TRACKING_URI,
    store_addresses,
)

ELSEWHERE = {
    STATE_URL: "postgresql://u@h/state",
    TRACKING_URI: "http://h:5000",
    OPTUNA_STORAGE: "postgresql://u@h/optuna",
}


@pytest.mark.parametrize(
    ("name", "address", "used"),
    [
        (TRACKING_URI, "postgresql://u:p%40@h:1/db?x=1", "postgresql+psycopg://u:p%40@h:1/db?x=1"),
        (TRACKING_URI, "postgres://u@h/db", "postgresql+psycopg://u@h/db"),
        (TRACKING_URI, "postgresql+psycopg://u@h/db", "postgresql+psycopg://u@h/db"),
        (TRACKING_URI, "http://h:5000", "http://h:5000"),
        (TRACKING_URI, "sqlite:////a/b.db", "sqlite:////a/b.db"),
        (TRACKING_URI, "databricks", "databricks"),
        (OPTUNA_STORAGE, "postgresql://u@h/db", "postgresql+psycopg://u@h/db"),
        (OPTUNA_STORAGE, "sqlite:///o.db", "sqlite:///o.db"),
        (PREFECT_DATABASE, "postgresql://u@h/db", "postgresql+asyncpg://u@h/db"),
        (
            PREFECT_DATABASE,
            "postgresql://u:p%40@h/db?sslmode=require&connect_timeout=3&application_name=lab",
            "postgresql+asyncpg://u:p%40@h/db?ssl=require",
        ),
        (PREFECT_DATABASE, "sqlite+aiosqlite:////a.db", "sqlite+aiosqlite:////a.db"),
        (PREFECT_API, "http://h:4200/api", "http://h:4200/api"),
    ],
)
def test_an_address_names_a_driver_that_is_installed(name: str, address: str, used: str) -> None:
    assert store_addresses({name: address, "OTHER": "garbage"}) == {name: used}


def test_what_is_not_set_stays_unset() -> None:
    assert store_addresses({TRACKING_URI: ""}) == {}


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (TRACKING_URI, "garbage://x"),
        (TRACKING_URI, "garbage"),
        (TRACKING_URI, "postgresql"),
        (OPTUNA_STORAGE, "garbage"),
        (OPTUNA_STORAGE, "http://h:1"),
        (PREFECT_API, "postgresql://u@h/db"),
        (ROOT, "/a/folder"),
        (ROOT, "file://relative"),
        (ROOT, "gs://bucket/x"),
    ],
)
def test_a_kind_that_the_tool_does_not_open_is_refused(name: str, address: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: got .*{address[-4:]}, expected .*://.*or unset {name}"):
        store_addresses({name: address})


def test_a_driver_that_is_not_installed_is_named() -> None:
    with pytest.raises(UsageError, match=r"got postgresql\+psycopg2://h/db, .*'psycopg2'.*install it"):
        store_addresses({TRACKING_URI: "postgresql+psycopg2://u:secret@h/db"})


def test_an_address_that_cannot_be_read_is_refused_without_its_password() -> None:
    with pytest.raises(UsageError, match="expected an address that SQLAlchemy reads") as refusal:
        store_addresses({OPTUNA_STORAGE: "postgresql://u:secret@h:port/db"})
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("root", ["s3://bucket", "s3://bucket/a/prefix"])
def test_a_root_on_s3_needs_stores_that_other_machines_reach(root: str) -> None:
    assert store_addresses({**ELSEWHERE, ROOT: root})[ROOT] == root
    for name, local in ((STATE_URL, ""), (TRACKING_URI, "sqlite:////a/mlflow.db"), (OPTUNA_STORAGE, "")):
        refused = rf"{ROOT}: got {root}, with {name} on this machine's disk, .*: set {name}=postgresql://"
        with pytest.raises(UsageError, match=refused):
            store_addresses({**ELSEWHERE, ROOT: root, name: local})


def test_a_root_on_a_disk_needs_nothing_else() -> None:
    assert store_addresses({ROOT: "file:///shared/ws"}) == {ROOT: "file:///shared/ws"}
