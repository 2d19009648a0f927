"""Numbers of a CSV with decimal commas, told from thousands, codes and lists."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_COMMA_NUMBER = r"^\s*(?:[-+]?(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]+)?)?\s*$"
_COMMA = r",[0-9]+\s*$"
_COMMA_OF_NO_THOUSANDS = r"(?:^\s*[-+]?0|\.[0-9]{3}|[0-9]{4}),[0-9]+\s*$|,(?:[0-9]{1,2}|[0-9]{4,})\s*$"


def decimal_commas(table: pa.Table, delimiter: str) -> list[str]:
    """Return the columns of texts of a CSV that are numbers with decimal commas, such as `1.234,5`.

    Between commas 1,234 may be a thousand: there a column is one of them only if some number can have no other meaning.
    Beside such a column, points in another one that can set off thousands do.
    """
    columns = {
        name: column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_string(column.type)
        and column.null_count < len(column)
        and pc.all(pc.match_substring_regex(column, _COMMA_NUMBER)).as_py()
    }
    certain = _COMMA if delimiter != "," else _COMMA_OF_NO_THOUSANDS
    names = [name for name, column in columns.items() if pc.any(pc.match_substring_regex(column, certain)).as_py()]
    thousands = [name for name, column in columns.items() if names and pc.any(pc.match_substring(column, ".")).as_py()]
    return [name for name in columns if name in {*names, *thousands}]
