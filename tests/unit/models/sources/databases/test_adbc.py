"""ADBC's handles answer as its module for DB-API does: rows as Python has them, and the driver's own errors."""

import adbc_driver_manager
import adbc_driver_sqlite
import pytest

from models.sources.databases import adbc


def test_a_question_is_answered_and_an_error_is_the_drivers() -> None:
    with adbc.connected(adbc_driver_sqlite.connect()) as connection:
        adbc.run(connection, "create table t (n, name)")
        adbc.run(connection, "insert into t values (1, 'a'), (2, null)")
        assert adbc.row_of(connection, "select max(n), count(*), max(name), null from t") == (2, 2, "a", None)
        with adbc.reader_of(connection, "select * from t", **{"adbc.sqlite.query.batch_rows": "1"}) as rows:
            assert [batch.to_pylist() for batch in rows] == [[{"n": 1, "name": "a"}], [{"n": 2, "name": None}]]
        with pytest.raises(adbc_driver_manager.Error, match="no such table"):
            adbc.row_of(connection, "select * from elsewhere")
