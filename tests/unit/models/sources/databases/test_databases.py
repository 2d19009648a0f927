"""Addresses lead to their kind of database; what goes wrong is one line without a secret."""

from pathlib import Path

import pytest

from models.errors import DataError, StoreError, UsageError
from models.sources.databases import databases
from models.sources.databases.databases import DATABASES, hidden, opened


def test_an_address_of_no_database_names_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="got oracle, expected an address of postgresql:"):
        databases.database_of("oracle://host/name", "query")
    with pytest.raises(UsageError, match="got no scheme"):
        databases.database_of("s3cr3t", "query")
    monkeypatch.setitem(DATABASES, "mysql", DATABASES["mysql"]._replace(library="no_such_library"))
    with pytest.raises(UsageError, match="needs no_such_library, which is not installed: run `"):
        databases.database_of("mysql://host/name", "query")


def test_neither_variable_nor_password_is_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "postgresql://ada:l%40ve@host/db")
    assert hidden("cannot parse postgresql://ada:l%40ve@host/db", "${URL}") == "cannot parse ${URL}"
    assert hidden("l@ve or l%40ve is wrong", "${URL}") == "*** or *** is wrong"


@pytest.mark.parametrize(
    ("address", "cure"),
    [
        ("postgresql://ada:hush@127.0.0.1:1/db", "nothing answers there: correct host and port"),
        ("mysql://ada:hush@127.0.0.1:1/db", "nothing answers there: correct host and port"),
        ("postgresql://ada:hush@no-such-host.invalid/db", "there is no such host"),
    ],
)
def test_a_server_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch, address: str, cure: str) -> None:
    monkeypatch.setenv("URL", address)
    with pytest.raises(StoreError, match=cure) as caught, opened("${URL}", Path(), "query"):
        pass
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "login", ["ada:hu/sh", "ada:12/sh", "ada:hu?sh", "ada:hu#sh", "ada:h@sh", "ada:h@hu/sh", "ada:hu/s?h"]
)
def test_a_password_with_a_sign_that_ends_it_early_reaches_no_driver(
    monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    """Libpq would tell the rest of it as a host or port."""
    monkeypatch.setenv("URL", f"postgresql://{login}@127.0.0.1:1/db")
    message = "the address is not well formed: write special"
    with pytest.raises(DataError, match=message) as caught, opened("${URL}", Path(), "query"):
        pass
    assert str(caught.value).endswith("write special characters of user and password as %XX")


@pytest.mark.parametrize("rest", ["ada@127.0.0.1:1/db?options=a@b", "127.0.0.1:1/db", "ada:h%40sh@127.0.0.1:1/db"])
def test_an_address_without_such_a_sign_is_tried(monkeypatch: pytest.MonkeyPatch, rest: str) -> None:
    monkeypatch.setenv("URL", f"postgresql://{rest}")
    with pytest.raises(StoreError, match="nothing answers there"), opened("${URL}", Path(), "query"):
        pass


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("URL", raising=False)
    with pytest.raises(UsageError, match="the variable URL is not set"), opened("${URL}", Path(), "query"):
        pass
