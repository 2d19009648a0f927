"""Features of `data.features.fit` as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.compose

from models.fitted_features.lookup import Lookup
from models.inputs.fitted.record import FittedInput
from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.numeric.nodes import normalise
from models.inputs.record import NUMBERS, InputRecord, LearntFiles
from models.ngrams.graph import ML_DOMAIN


def _numbers(
    builder: GraphBuilder, parts: Sequence[FittedInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    return [normalise(builder, _stacked(builder, parts, inputs, files), parts, prefix="fitted")]


def _stacked(
    builder: GraphBuilder, parts: Sequence[FittedInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> str:
    """Return the features of `data.features.fit`, float64 (batch, feature), as `models/fitted_features` makes them."""
    columns = {part.name: part.name for part in inputs if part.form in NUMBERS}
    columns |= {lookup.name: _looked_up(builder, number, lookup) for number, lookup in enumerate(files.lookups)}
    names = [part.name for part in parts]
    if not files.transform:
        return stacked(builder, [columns[name] for name in names], "fitted/stacked")
    prefix = f"{builder.prefix}transform/"
    model = onnx.load_from_string(files.transform)
    onnx.compose.add_prefix(model, prefix, inplace=True)
    for number, column in enumerate(columns.values()):
        builder.node("Identity", [column], f"transform/column/{number}", output=f"{prefix}c{number}")
    builder.nodes += model.graph.node
    builder.constants += model.graph.initializer
    return stacked(builder, [f"{prefix}f{number}" for number in range(len(names))], "fitted/stacked")


def _looked_up(builder: GraphBuilder, number: int, lookup: Lookup) -> str:
    # An encoder needs at least one key; the number of an unseen value is none.
    index = builder.node(
        "LabelEncoder",
        [lookup.column],
        f"lookup/index/{number}",
        domain=ML_DOMAIN,
        keys_strings=[key.encode() for key in lookup.keys or [""]],
        values_int64s=list(range(1, len(lookup.keys) + 1)) or [0],
        default_int64=0,
    )
    table = builder.constant(f"lookup/values/{number}", np.array([np.nan, *lookup.values]))
    return builder.node("Gather", [table, index], f"lookup/found/{number}", axis=0)


NODES = KindNodes({"numeric": _numbers})
