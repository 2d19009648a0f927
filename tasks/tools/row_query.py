"""A query in SQL that expects no rows of a table, run by DuckDB without files, network or extensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from models import scratch
from models.errors import UsageError, one_line
from models.project_spec.reserved_columns import POSITION_COLUMN
from models.sources.databases.duck import CLOSED

_BATCH = "batch"


class UnexpectedRows(NamedTuple):
    """How many rows a query returned, the first of them, and their numbers.

    Attributes:
        positions: int64, to set these rows aside; empty if the query chose no `POSITION_COLUMN`.
    """

    num_rows: int
    examples: list[dict[str, Any]]
    positions: np.ndarray


def unexpected_rows(table: pa.Table, query: str, num_examples: int) -> UnexpectedRows:
    """Return what a query of a table finds: `SELECT * FROM {batch} WHERE paid > owed`.

    Cost: DuckDB reads only the columns that the query names, in parts; what it returns is counted, not kept.

    Raises:
        UsageError: It is not a single SELECT, or DuckDB refuses it; the message has its reason.
    """
    import duckdb

    numbered = table.append_column(POSITION_COLUMN, pa.array(scratch.counted(table.num_rows)))
    with duckdb.connect(config=CLOSED) as connection:
        try:
            connection.register(_BATCH, numbered)
            text = query.format(batch=_BATCH)
            statements = connection.extract_statements(text)
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise UsageError(f"{query!r}: expected a single SELECT: write one that returns the unexpected rows")
            unexpected = _counted(connection.sql(statements[0]).to_arrow_reader(100_000), num_examples)
        except (duckdb.Error, LookupError, AttributeError, ValueError, OverflowError) as error:
            cure = "correct unexpected_rows_query; the table is {batch}, and a literal brace is written twice"
            raise UsageError(f"{query!r} cannot be run ({one_line(error, 200)}): {cure}") from error
    is_row = (unexpected.positions >= 0) & (unexpected.positions < table.num_rows)  # a query may compute the column
    return unexpected._replace(positions=unexpected.positions[is_row])


def _counted(reader: Any, num_examples: int) -> UnexpectedRows:
    num_rows, positions = 0, [np.zeros(0, np.int64)]
    examples: list[dict[str, Any]] = []
    for batch in reader:
        examples += batch.slice(0, num_examples - len(examples)).to_pylist()
        num_rows += batch.num_rows
        if POSITION_COLUMN in batch.schema.names and batch.schema.field(POSITION_COLUMN).type == pa.int64():
            positions.append(batch.column(POSITION_COLUMN).drop_null().to_numpy())
    chosen = [{name: value for name, value in row.items() if name != POSITION_COLUMN} for row in examples]
    return UnexpectedRows(num_rows, chosen, np.unique(np.concatenate(positions)))
