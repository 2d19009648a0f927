"""Dates and times as nodes of the exported graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from models.inputs.datetime.record import CYCLE_S, STEPS, DatetimeInput
from models.inputs.graph_builder import GraphBuilder, stacked
from models.inputs.kind_nodes import KindNodes
from models.inputs.record import InputRecord, LearntFiles


def _numbers(
    builder: GraphBuilder, parts: Sequence[DatetimeInput], inputs: Sequence[InputRecord], files: LearntFiles
) -> list[str]:
    del inputs, files
    return [_features(builder, parts)]


def _features(builder: GraphBuilder, parts: Sequence[DatetimeInput]) -> str:
    """Return the features of times in seconds, as `models.inputs.datetime.rows.datetime_features` computes them."""

    def constant(name: str, values: list[Any], dtype: type = np.float64) -> str:
        return builder.constant(f"datetime/{name}", np.array(values, dtype))

    def chosen(name: str, columns: list[int]) -> str:
        return builder.node(
            "Gather", [seconds, constant(f"{name}/columns", columns, np.int64)], f"datetime/{name}", axis=1
        )

    seconds = stacked(builder, [part.name for part in parts], "datetime/seconds")
    cycles = [(position, CYCLE_S[cycle]) for position, part in enumerate(parts) for cycle in part.cycles]
    features = []
    if cycles:
        periods = constant("periods", [period for _, period in cycles])
        turned = builder.node(
            "Mod", [chosen("cycles", [position for position, _ in cycles]), periods], "datetime/turned", fmod=1
        )
        radians = constant("radians", [period / (2 * np.pi) for _, period in cycles])
        angle = builder.node("Div", [turned, radians], "datetime/angle")
        steps = constant("steps", [STEPS])
        for op in ("Sin", "Cos"):
            name = f"datetime/{op.lower()}"
            fine = builder.node("Mul", [builder.node(op, [angle], name), steps], f"{name}/fine")
            whole = builder.node("Round", [fine], f"{name}/whole")
            features.append(builder.node("Div", [whole, steps], f"{name}/rounded"))
    trends = [position for position, part in enumerate(parts) if part.trend]
    if trends:
        low, high, shift, scale = (
            constant(field, [getattr(parts[position], field) for position in trends])
            for field in ("low", "high", "shift", "scale")
        )
        late = builder.node("Max", [chosen("trends", trends), low], "datetime/late")
        within = builder.node("Min", [late, high], "datetime/within")
        centred = builder.node("Sub", [within, shift], "datetime/centred")
        features.append(builder.node("Div", [centred, scale], "datetime/scaled"))
    joined = builder.node("Concat", features, "datetime/joined", axis=1)
    missing = builder.node("IsNaN", [joined], "datetime/missing")
    filled = builder.node("Where", [missing, constant("zero", [0.0]), joined], "datetime/filled")
    return builder.node("Cast", [filled], "datetime/float", to=onnx.TensorProto.FLOAT)


NODES = KindNodes({"numeric": _numbers})
