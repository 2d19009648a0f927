"""The preparation as a stretch of ONNX graph: raw columns in, the net's tensors out.

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
    """The inputs of the exported graph, by the project's own column names; first comes the batch."""
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


def preparation_stretch(preparation: Preparation, wanted: set[str]) -> GraphBuilder:
    """The nodes that make the net's tensors: `core/numeric`, `core/categorical`, `core/image`, `core/tokens` and so on.

    Args:
        preparation: The schema that travels with the model.
        wanted: The tensors that the net reads; nothing is written for the others.
    """
    stretch = GraphBuilder("prepare/")
    if preparation.kind == "image" and preparation.pixels:
        _image(stretch, preparation.pixels)
    elif preparation.kind == "series":
        _normalise(stretch, "series", preparation.numeric, CORE_PREFIX + "series")
    elif preparation.characters is not None:
        _characters(stretch, preparation.characters)
    else:
        if "numeric" in wanted:
            _numeric(stretch, preparation)
        if "categorical" in wanted:
            _categorical(stretch, preparation)
    return stretch


def _numeric(stretch: GraphBuilder, preparation: Preparation) -> None:
    if not preparation.numeric:
        _nothing(stretch, preparation.categorical[0].name, "numeric", onnx.TensorProto.FLOAT)
        return
    names = [part.name for part in preparation.numeric]
    stacked = _columns(stretch, names, "numeric/stacked")
    _normalise(stretch, stacked, preparation.numeric, CORE_PREFIX + "numeric")


def _normalise(stretch: GraphBuilder, raw: str, parts: list[NumericInput], output: str) -> None:
    def constant(name: str, values: list[float]) -> str:
        return stretch.constant(f"numeric/{name}", np.array(values, np.float64))

    missing = stretch.node("IsNaN", [raw], "numeric/missing")
    fill = constant("fill", [part.fill for part in parts])
    filled = stretch.node("Where", [missing, fill, raw], "numeric/filled")
    shift = constant("shift", [part.shift for part in parts])
    scale = constant("scale", [part.scale for part in parts])
    centred = stretch.node("Sub", [filled, shift], "numeric/centred")
    scaled = stretch.node("Div", [centred, scale], "numeric/scaled")
    stretch.node("Cast", [scaled], "numeric/float", output=output, to=onnx.TensorProto.FLOAT)


def _categorical(stretch: GraphBuilder, preparation: Preparation) -> None:
    parts = preparation.categorical
    if not parts:
        _nothing(stretch, preparation.numeric[0].name, "categorical", onnx.TensorProto.INT64)
        return
    indices = [_index(stretch, part) for part in parts]
    _columns(stretch, indices, "categorical/stacked", CORE_PREFIX + "categorical")


def _index(stretch: GraphBuilder, part: CategoricalInput) -> str:
    # An encoder needs at least one key; a column without categories gets one that maps to "unseen" as well.
    keys = part.categories or [""]
    values = range(1, len(keys) + 1) if part.categories else [0]
    return stretch.node(
        "LabelEncoder",
        [part.name],
        f"categorical/index/{part.name}",
        domain=ML_DOMAIN,
        keys_strings=[key.encode() for key in keys],
        values_int64s=list(values),
        default_int64=0,
    )


def _columns(stretch: GraphBuilder, names: list[str], what: str, output: str = "") -> str:
    """Columns (batch,) side by side as (batch, column); the runtime refuses columns of different lengths."""
    axis = stretch.constant(f"{what}/axis", np.array([1], np.int64))
    upright = [stretch.node("Unsqueeze", [name, axis], f"{what}/{position}") for position, name in enumerate(names)]
    return stretch.node("Concat", upright, what, output=output, axis=1)


def _nothing(stretch: GraphBuilder, column: str, what: str, dtype: int) -> None:
    """A tensor (batch, 0): what a net gets for a kind of column that the table lacks."""
    batch = stretch.node("Shape", [column], f"{what}/batch")
    zero = stretch.constant(f"{what}/zero", np.array([0], np.int64))
    shape = stretch.node("Concat", [batch, zero], f"{what}/shape", axis=0)
    value = helper.make_tensor("value", dtype, [1], [0])
    stretch.node("ConstantOfShape", [shape], f"{what}/empty", output=CORE_PREFIX + what, value=value)


def _characters(stretch: GraphBuilder, characters: TextInput) -> None:
    """Code points to indices of the alphabet."""
    stretch.node(
        "LabelEncoder",
        ["text"],
        "characters/index",
        output=CORE_PREFIX + "tokens",
        domain=ML_DOMAIN,
        keys_int64s=[ord(character) for character in characters.alphabet],
        values_int64s=list(range(1, characters.cardinality)),
        default_int64=0,
    )


def _image(stretch: GraphBuilder, pixels: ImageInput) -> None:
    mean = stretch.constant("image/mean", np.array(pixels.mean, np.float32).reshape(-1, 1, 1))
    std = stretch.constant("image/std", np.array(pixels.std, np.float32).reshape(-1, 1, 1))
    white = stretch.constant("image/white", np.array(255, np.float32))
    channels_first = stretch.node("Transpose", ["image"], "image/channels_first", perm=[0, 3, 1, 2])
    levels = stretch.node("Cast", [channels_first], "image/levels", to=onnx.TensorProto.FLOAT)
    unit = stretch.node("Div", [levels, white], "image/unit")
    centred = stretch.node("Sub", [unit, mean], "image/centred")
    stretch.node("Div", [centred, std], "image/scaled", output=CORE_PREFIX + "image")
