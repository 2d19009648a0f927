"""Names are quoted as SQL wants, and files lie beside the spec."""

from pathlib import Path

from models.sources.databases.database import double_quoted, file_of


def test_a_quote_within_a_name_is_doubled() -> None:
    assert double_quoted('a "b" c') == '"a ""b"" c"'


def test_three_slashes_are_relative_and_four_are_absolute() -> None:
    assert file_of("sqlite:///shop.db?x=1", Path("/team/churn")) == Path("/team/churn/shop.db")
    assert file_of("duckdb:////srv/shop.db", Path("/team/churn")) == Path("/srv/shop.db")
