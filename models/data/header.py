"""The columns of a table: do they hold what the spec names?"""

from __future__ import annotations

from collections.abc import Sequence

from models.errors import DataError, did_you_mean
from models.project_spec.blocks import Data


def check_names(names: Sequence[str], data: Data, slices: Sequence[str] = ()) -> None:
    """Refuse column names that lack one which the spec names.

    Raises:
        DataError: Names the key of the spec, the missing column and the column with the nearest name.
    """
    features = data.features
    named: dict[str, list[str]] = {
        "data.text.column" if data.kind == "text" else "data.target": data.targets,
        "data.id": [data.id] if data.id else [],
        "data.na_is_text": data.na_is_text,
        "data.dates": list(data.dates),
        "data.decimal_commas": data.decimal_commas,
        "data.weight": [data.weight] if data.weight else [],
        "data.split.column": [data.split.column] if data.split.column else [],
        "data.features.columns": features.columns or [],
        "data.features.drop": features.drop,
        "data.features.kinds": list(features.kinds),
        "data.window.series_key": data.series_keys,
        "data.window.known_future": data.known_future,
        "data.image.column": [data.image.column] if data.image else [],
        "judge.slices": list(slices),
    }
    names_of_columns = set(names)
    for key, columns in named.items():
        for column in columns:
            if column not in names_of_columns:
                raise DataError(f"{key}: {no_such_column(column, list(names))}")


def no_such_column(column: str, names: list[str]) -> str:
    """Return the error message for a missing column: it shows the nearest name, or all names."""
    cure = did_you_mean(column, names, "correct the name, or add the column to the source")
    return f"no column {column!r} in the data, which has {', '.join(names[:40])}: {cure}"
