"""The preparation as ONNX nodes: they turn raw columns into the net's tensors.

The arithmetic is that of `models/data/encode.py`, operator by operator: float64 until the last cast.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from models.data.preparation import CategoricalInput, ImageInput, NumericInput, Preparation, TextInput
from models.export.graph_builder import ML_DOMAIN, GraphBuilder

CORE_PREFIX = "core/"


def graph_inputs(preparation: Preparation) -> list[onnx.ValueInfoProto]:
    """Return the inputs of the exported graph by the project's own column names; the first dimension is the batch."""
    types = onnx.TensorProto
    if preparation.kind == "image" and preparation.pixels:
        image = preparation.pixels.image
        shape = ["batch", image.height, image.width, image.channels]
        return [helper.make_tensor_value_info("image", types.UINT8, shape)]
    if preparation.kind == "series" and preparation.window:
        shape = ["batch", preparation.window.length, len(preparation.numeric)]
        return [helper.make_tensor_value_info("series", types.DOUBLE, shape)]
    if preparation.kind == "text":
        return [helper.make_tensor_value_info("text", types.INT64, ["batch", "length"])]
    columns = [(part.name, types.DOUBLE) for part in preparation.numeric]
    columns += [(part.name, types.STRING) for part in preparation.categorical]
    return [helper.make_tensor_value_info(name, kind, ["batch"]) for name, kind in columns]


def preparation_part(preparation: Preparation, wanted: set[str]) -> GraphBuilder:
    """Return the nodes that make the net's tensors: `core/numeric`, `core/categorical`, `core/image` and so on.

    Args:
        preparation: The preparation schema of the model.
        wanted: The tensors that the net reads; no nodes are written for the others.
    """
    builder = GraphBuilder("prepare/")
    if preparation.kind == "image" and preparation.pixels:
        _image(builder, preparation.pixels)
    elif preparation.kind == "series":
        _normalise(builder, "series", preparation.numeric, CORE_PREFIX + "series")
    elif preparation.characters is not None:
        _characters(builder, preparation.characters)
    else:
        if "numeric" in wanted:
            _numeric(builder, preparation)
        if "categorical" in wanted:
            _categorical(builder, preparation)
    return builder


def _numeric(builder: GraphBuilder, preparation: Preparation) -> None:
    if not preparation.numeric:
        _nothing(builder, preparation.categorical[0].name, "numeric", onnx.TensorProto.FLOAT)
        return
    names = [part.name for part in preparation.numeric]
    stacked = _columns(builder, names, "numeric/stacked")
    _normalise(builder, stacked, preparation.numeric, CORE_PREFIX + "numeric")


def _normalise(builder: GraphBuilder, raw: str, parts: list[NumericInput], output: str) -> None:
    def constant(name: str, values: list[float]) -> str:
        return builder.constant(f"numeric/{name}", np.array(values, np.float64))

    missing = builder.node("IsNaN", [raw], "numeric/missing")
    fill = constant("fill", [part.fill for part in parts])
    filled = builder.node("Where", [missing, fill, raw], "numeric/filled")
    shift = constant("shift", [part.shift for part in parts])
    scale = constant("scale", [part.scale for part in parts])
    centred = builder.node("Sub", [filled, shift], "numeric/centred")
    scaled = builder.node("Div", [centred, scale], "numeric/scaled")
    builder.node("Cast", [scaled], "numeric/float", output=output, to=onnx.TensorProto.FLOAT)


def _categorical(builder: GraphBuilder, preparation: Preparation) -> None:
    parts = preparation.categorical
    if not parts:
        _nothing(builder, preparation.numeric[0].name, "categorical", onnx.TensorProto.INT64)
        return
    indices = [_index(builder, part) for part in parts]
    _columns(builder, indices, "categorical/stacked", CORE_PREFIX + "categorical")


def _index(builder: GraphBuilder, part: CategoricalInput) -> str:
    # An encoder needs at least one key; a column without categories gets one that maps to "unseen" as well.
    keys = part.categories or [""]
    values = range(1, len(keys) + 1) if part.categories else [0]
    return builder.node(
        "LabelEncoder",
        [part.name],
        f"categorical/index/{part.name}",
        domain=ML_DOMAIN,
        keys_strings=[key.encode() for key in keys],
        values_int64s=list(values),
        default_int64=0,
    )


def _columns(builder: GraphBuilder, names: list[str], what: str, output: str = "") -> str:
    """Stack columns (batch,) into (batch, column); the runtime refuses columns of different lengths."""
    axis = builder.constant(f"{what}/axis", np.array([1], np.int64))
    upright = [builder.node("Unsqueeze", [name, axis], f"{what}/{position}") for position, name in enumerate(names)]
    return builder.node("Concat", upright, what, output=output, axis=1)


def _nothing(builder: GraphBuilder, column: str, what: str, dtype: int) -> None:
    """Add an empty tensor (batch, 0), the net's input for a kind of column that the table lacks."""
    batch = builder.node("Shape", [column], f"{what}/batch")
    zero = builder.constant(f"{what}/zero", np.array([0], np.int64))
    shape = builder.node("Concat", [batch, zero], f"{what}/shape", axis=0)
    value = helper.make_tensor("value", dtype, [1], [0])
    builder.node("ConstantOfShape", [shape], f"{what}/empty", output=CORE_PREFIX + what, value=value)


def _characters(builder: GraphBuilder, characters: TextInput) -> None:
    """Convert code points to indices of the alphabet."""
    builder.node(
        "LabelEncoder",
        ["text"],
        "characters/index",
        output=CORE_PREFIX + "tokens",
        domain=ML_DOMAIN,
        keys_int64s=[ord(character) for character in characters.alphabet],
        values_int64s=list(range(1, characters.cardinality)),
        default_int64=0,
    )


def _image(builder: GraphBuilder, pixels: ImageInput) -> None:
    mean = builder.constant("image/mean", np.array(pixels.mean, np.float32).reshape(-1, 1, 1))
    std = builder.constant("image/std", np.array(pixels.std, np.float32).reshape(-1, 1, 1))
    white = builder.constant("image/white", np.array(255, np.float32))
    channels_first = builder.node("Transpose", ["image"], "image/channels_first", perm=[0, 3, 1, 2])
    levels = builder.node("Cast", [channels_first], "image/levels", to=onnx.TensorProto.FLOAT)
    unit = builder.node("Div", [levels, white], "image/unit")
    centred = builder.node("Sub", [unit, mean], "image/centred")
    builder.node("Div", [centred, std], "image/scaled", output=CORE_PREFIX + "image")
