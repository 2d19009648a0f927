"""The text form of labels in the label store, and its values in the form for metrics.

One target: the class, or the number. Several targets: a JSON object with the number of each, in the order of the spec.
Servers write texts and import no pyarrow; it is imported where texts are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from models.data.target_encoding import TargetEncoding
from models.feedback.columns import LABEL
from models.kinds.task import PerTask

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]

TARGET_DTYPES: PerTask[type[np.generic]] = {
    "binary": np.int64,
    "multiclass": np.int64,
    "multilabel": np.int64,
    "regression": np.float64,
    "quantile": np.float64,
    "language": np.float64,
    "ranking": np.float64,
}
"""The type of true values in the form for metrics: classes and labels are whole numbers."""


def forms_of_labels(columns: Sequence[str], forms: Mapping[str, str]) -> dict[str, str]:
    """Return how texts of labels are written, by the names under which they come: of a target's column, or `label`."""
    targets = {LABEL: columns[0]} | {name: name for name in columns}
    return {name: forms[target] for name, target in targets.items() if target in forms}


def label_text(values: Mapping[str, float], columns: Sequence[str]) -> str:
    """Return the text of one row's labels of several targets."""
    return json.dumps({name: float(values[name]) for name in columns})


def label_columns(labels: pa.ChunkedArray, columns: Sequence[str]) -> dict[str, pa.Array]:
    """Return the label of each of several targets as float64 (row,); null where a text is no such label."""
    import pyarrow as pa

    rows = [_parsed(text) for text in labels.to_pylist()]
    return {name: pa.array([_number(row.get(name)) for row in rows], pa.float64()) for name in columns}


def label_values(labels: pa.ChunkedArray, target: TargetEncoding | None) -> Array:
    """Return label texts as numbers: the class index, or the number itself; NaN for other texts.

    (row,), or of several outputs (row, output).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from models.inputs.types import as_text

    if target is not None and len(target.columns) > 1:
        parts = label_columns(labels, target.columns)
        return np.stack([parts[output.column].to_numpy(zero_copy_only=False) for output in target.outputs], axis=1)
    texts = as_text(labels)
    if target is not None and target.classes is not None:
        indices = pc.index_in(texts, pa.array(target.classes, pa.string()))
        return np.asarray(indices.cast(pa.float64()).to_numpy(), dtype=np.float64)
    values = np.array([_number(text) for text in texts.to_pylist()], dtype=np.float64)
    return np.repeat(values[:, None], len(target.outputs), axis=1) if target and target.outputs else values


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "null")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    try:
        number = float(value) if value is not None else np.nan
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None
