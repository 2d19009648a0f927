"""What of Postgres is known without a server: how an address is written, and what a read asks."""

from models.sources.databases.postgres import POSTGRES, digest


def test_all_rows_are_hashed_in_any_order_by_one_query() -> None:
    assert digest(["a"]).replace("{sql}", "select 1") == (
        "select count(*), coalesce(sum(hashtextextended(q::text, 0)), 0)::text from (select 1\n) as q"
    )
    assert POSTGRES.file is not None
