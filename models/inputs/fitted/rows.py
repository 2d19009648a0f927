"""Features of `data.features.fit` as inputs: they are made of the columns of the other inputs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from models.errors import DataError, UserCodeError
from models.fitted_features.state import FeatureCode, InputColumns
from models.inputs.fitted.record import FittedInput
from models.inputs.numeric.rows import fit_numeric, numeric_matrix
from models.inputs.raw_rows import KindRows, LearntInputs, PreparedColumns, RawRows, Tensors
from models.inputs.record import NUMBERS, InputRecord, LearntFiles
from models.inputs.types import as_float64, as_text
from models.project_spec.reserved_columns import FITTED_PREFIX


def feature_inputs(prepared: PreparedColumns, parts: Sequence[InputRecord]) -> InputColumns:
    """Return the prepared columns that fitted features are made of: numbers, times in seconds, and categories."""
    numbers = {part.name: prepared[part.name].to_numpy() for part in parts if part.form in NUMBERS}
    return InputColumns(numbers, {part.name: prepared[part.name] for part in parts if part.form == "category"})


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[FittedInput]:
    """Return the features of the spec's functions; they have no columns, and `names` is empty."""
    del names
    features = rows.data.features
    if features.fit is None or rows.base is None or not learnt.parts:
        return []
    from models.fitted_features.fit import FitRows, fit_features

    code = FeatureCode(str(features.fit), features.transform, rows.base)
    fitted = fit_features(
        code,
        FitRows(rows.table, rows.data.targets, rows.train, rows.units),
        feature_inputs(learnt.prepared, learnt.parts),
        as_text,
    )
    parts = []
    for name, values in fitted.values.items():
        try:
            scaled = fit_numeric(name, values[rows.train], features)
        except DataError as error:
            raise UserCodeError(f"data.features.fit {code.fit}: {error}") from error
        parts.append(FittedInput(**scaled.model_dump(include={"name", "fill", "shift", "scale", "low", "high"})))
        learnt.add(FITTED_PREFIX + name, pa.array(values))
    learnt.files.lookups, learnt.files.transform = fitted.lookups, fitted.graph
    return parts


def _values(column: pa.ChunkedArray, part: FittedInput) -> pa.ChunkedArray:
    return pa.chunked_array([as_float64(column, part.name)])


def _fitted_columns(
    parts: Sequence[FittedInput], inputs: Sequence[InputRecord], prepared: PreparedColumns, files: LearntFiles
) -> PreparedColumns:
    from models.fitted_features.fit import feature_values

    names = [part.name for part in parts]
    values = feature_values(files.lookups, files.transform, names, feature_inputs(prepared, inputs)) if names else {}
    return {FITTED_PREFIX + name: pa.chunked_array([column]) for name, column in values.items()}


def _encode(rows: pa.Table, parts: Sequence[FittedInput], files: LearntFiles) -> Tensors:
    del files
    return {"numeric": numeric_matrix(rows, parts, FITTED_PREFIX)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
    made=_fitted_columns,
)
