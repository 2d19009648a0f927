"""Addresses lead to their kind of database; what goes wrong is one line without a secret."""

from pathlib import Path

import pytest

from models.errors import StoreError, UsageError
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


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("URL", raising=False)
    with pytest.raises(UsageError, match="the variable URL is not set"), opened("${URL}", Path(), "query"):
        pass
