"""What trees and other estimators read, as nodes: the columns of a table, or the features of a series' windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx

from models.data.preparation import Preparation
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.kinds.data_kind import PerDataKind


class Correction(NamedTuple):
    """The names of tensors with which the sum of the leaves becomes the output: base + slope * sum.

    `base` is (batch, output), `slope` (batch, 1).
    """

    base: str
    slope: str


FeatureNodes = tuple[GraphBuilder, str, Correction | None]
"""A builder, the name of the features (batch, input) in float64, and of series what is corrected."""


def feature_nodes(preparation: Preparation) -> FeatureNodes:
    """Return a builder with the nodes that make the trees' input, its name, and for series what the trees correct."""
    return _INPUTS[preparation.kind](preparation)


def corrected(builder: GraphBuilder, raw: str, correction: Correction | None, prefix: str) -> str:
    """Append what turns sums of leaves into outputs (batch, output), as `TreeInputs.output` does; return their name.

    Args:
        builder: From `feature_nodes`.
        raw: The name of the sums (batch, output).
        correction: From `feature_nodes`; None: the sums are the outputs.
        prefix: Of the names of the nodes.
    """
    if correction is None:
        return raw
    changed = builder.node("Mul", [raw, correction.slope], f"{prefix}/change")
    return builder.node("Add", [correction.base, changed], f"{prefix}/corrected")


def _of_columns(preparation: Preparation) -> FeatureNodes:
    builder = GraphBuilder(CORE_PREFIX)
    return builder, _features(builder, preparation.num_numeric, len(preparation.cardinalities)), None


def _of_windows(preparation: Preparation) -> FeatureNodes:
    from models.export.net_graph import net_part
    from models.nets.window_features import WindowFeatures

    builder, output = net_part(WindowFeatures(preparation), preparation)

    def columns(name: str, start: int, stop: int) -> str:
        ends = [builder.constant(f"trees/{name}/{bound}", np.array([bound], np.int64)) for bound in (start, stop, 1)]
        return builder.node("Slice", [output, *ends], f"trees/{name}")

    last = -preparation.num_outputs - 1
    return builder, columns("features", 0, last), Correction(columns("base", last, -1), columns("slope", -1, 1 << 31))


_INPUTS: PerDataKind[Callable[[Preparation], FeatureNodes]] = {
    "table": _of_columns,
    "image": _of_columns,
    "series": _of_windows,
    "text": _of_columns,
}


def _features(builder: GraphBuilder, num_numeric: int, num_categorical: int) -> str:
    names = [("numeric", num_numeric), ("categorical", num_categorical)]
    doubles = [
        builder.node("Cast", [CORE_PREFIX + name], f"{name}_double", to=onnx.TensorProto.DOUBLE)
        for name, width in names
        if width
    ]
    return builder.node("Concat", doubles, "features", axis=1)
