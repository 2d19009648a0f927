"""The preparation as ONNX nodes: they turn raw columns into the net's tensors.

The arithmetic is that of `models/data/encode.py`, operator by operator: float64 until the last cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.compose
from onnx import helper

from models.data.preparation import Preparation, TextInput
from models.fitted_features.lookup import Lookup
from models.inputs.categorical.record import CategoricalInput
from models.inputs.datetime.record import CYCLE_S, DatetimeInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import ScaledNumber
from models.inputs.text.record import word_offsets
from models.ngrams.graph import ML_DOMAIN, feature_nodes
from models.ngrams.word_graph import word_nodes

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
    columns = [(name, types.DOUBLE) for name in preparation.number_columns]
    columns += [(name, types.STRING) for name in preparation.text_columns]
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
        raw = _carried_forward(builder, "series", preparation)
        _normalise(builder, raw, preparation.numeric, CORE_PREFIX + "series")
    elif preparation.characters is not None:
        _characters(builder, preparation.characters)
    else:
        if "numeric" in wanted:
            _numeric(builder, preparation)
        if "categorical" in wanted:
            _categorical(builder, preparation)
        if "words" in wanted:
            _words(builder, preparation)
    return builder


def _numeric(builder: GraphBuilder, preparation: Preparation) -> None:
    parts = []
    if preparation.numeric:
        stacked = _columns(builder, [part.name for part in preparation.numeric], "numeric/stacked")
        parts.append(_normalise(builder, stacked, preparation.numeric))
    if preparation.fitted:
        parts.append(_normalise(builder, _fitted(builder, preparation), preparation.fitted, what="fitted"))
    if preparation.datetimes:
        parts.append(_datetimes(builder, preparation.datetimes))
    for at, text in enumerate(preparation.texts):
        output = f"{builder.prefix}text/{at}"
        nodes, constants = feature_nodes(preparation.ngrams[text.name], text.name, output, f"{output}/")
        builder.nodes += nodes
        builder.constants += constants
        parts.append(output)
    if not parts:
        _nothing(builder, preparation.columns[0], "numeric", onnx.TensorProto.FLOAT)
        return
    builder.node("Concat", parts, "numeric", output=CORE_PREFIX + "numeric", axis=1)


def _datetimes(builder: GraphBuilder, parts: list[DatetimeInput]) -> str:
    """Return the features of times in seconds, as `models.inputs.datetime.rows.datetime_features` computes them."""

    def constant(name: str, values: list[Any], dtype: type = np.float64) -> str:
        return builder.constant(f"datetime/{name}", np.array(values, dtype))

    def chosen(name: str, columns: list[int]) -> str:
        return builder.node(
            "Gather", [seconds, constant(f"{name}/columns", columns, np.int64)], f"datetime/{name}", axis=1
        )

    seconds = _columns(builder, [part.name for part in parts], "datetime/seconds")
    cycles = [(at, CYCLE_S[cycle]) for at, part in enumerate(parts) for cycle in part.cycles]
    features = []
    if cycles:
        periods = constant("periods", [period for _, period in cycles])
        turned = builder.node("Mod", [chosen("cycles", [at for at, _ in cycles]), periods], "datetime/turned", fmod=1)
        radians = constant("radians", [period / (2 * np.pi) for _, period in cycles])
        angle = builder.node("Div", [turned, radians], "datetime/angle")
        features += [builder.node(op, [angle], f"datetime/{op.lower()}") for op in ("Sin", "Cos")]
    trends = [at for at, part in enumerate(parts) if part.trend]
    if trends:
        low, high, shift, scale = (
            constant(field, [getattr(parts[at], field) for at in trends]) for field in ("low", "high", "shift", "scale")
        )
        late = builder.node("Max", [chosen("trends", trends), low], "datetime/late")
        within = builder.node("Min", [late, high], "datetime/within")
        centred = builder.node("Sub", [within, shift], "datetime/centred")
        features.append(builder.node("Div", [centred, scale], "datetime/scaled"))
    joined = builder.node("Concat", features, "datetime/joined", axis=1)
    missing = builder.node("IsNaN", [joined], "datetime/missing")
    filled = builder.node("Where", [missing, constant("zero", [0.0]), joined], "datetime/filled")
    return builder.node("Cast", [filled], "datetime/float", to=onnx.TensorProto.FLOAT)


def _fitted(builder: GraphBuilder, preparation: Preparation) -> str:
    """Return the features of `data.features.fit`, float64 (batch, feature), as `models/fitted_features` makes them."""
    columns = {name: name for name in preparation.number_columns}
    columns |= {lookup.name: _looked_up(builder, at, lookup) for at, lookup in enumerate(preparation.lookups)}
    names = [part.name for part in preparation.fitted]
    if not preparation.transform:
        return _columns(builder, [columns[name] for name in names], "fitted/stacked")
    prefix = f"{builder.prefix}transform/"
    model = onnx.load_from_string(preparation.transform)
    onnx.compose.add_prefix(model, prefix, inplace=True)
    for at, column in enumerate(columns.values()):
        builder.node("Identity", [column], f"transform/column/{at}", output=f"{prefix}c{at}")
    builder.nodes += model.graph.node
    builder.constants += model.graph.initializer
    return _columns(builder, [f"{prefix}f{at}" for at in range(len(names))], "fitted/stacked")


def _looked_up(builder: GraphBuilder, at: int, lookup: Lookup) -> str:
    # An encoder needs at least one key; the number of an unseen value is none.
    index = builder.node(
        "LabelEncoder",
        [lookup.column],
        f"lookup/index/{at}",
        domain=ML_DOMAIN,
        keys_strings=[key.encode() for key in lookup.keys or [""]],
        values_int64s=list(range(1, len(lookup.keys) + 1)) or [0],
        default_int64=0,
    )
    table = builder.constant(f"lookup/values/{at}", np.array([np.nan, *lookup.values]))
    return builder.node("Gather", [table, index], f"lookup/found/{at}", axis=0)


def _normalise(
    builder: GraphBuilder, raw: str, parts: Sequence[ScaledNumber], output: str = "", *, what: str = "numeric"
) -> str:
    def constant(name: str, values: list[float]) -> str:
        return builder.constant(f"{what}/{name}", np.array(values, np.float64))

    missing = builder.node("IsNaN", [raw], f"{what}/missing")
    fill = constant("fill", [part.fill for part in parts])
    filled = builder.node("Where", [missing, fill, raw], f"{what}/filled")
    if any(part.low is not None for part in parts):
        low = constant("low", [-np.inf if part.low is None else part.low for part in parts])
        high = constant("high", [np.inf if part.high is None else part.high for part in parts])
        filled = builder.node("Min", [builder.node("Max", [filled, low], f"{what}/least"), high], f"{what}/most")
    shift = constant("shift", [part.shift for part in parts])
    scale = constant("scale", [part.scale for part in parts])
    centred = builder.node("Sub", [filled, shift], f"{what}/centred")
    scaled = builder.node("Div", [centred, scale], f"{what}/scaled")
    return builder.node("Cast", [scaled], f"{what}/float", output=output, to=onnx.TensorProto.FLOAT)


def _carried_forward(builder: GraphBuilder, raw: str, preparation: Preparation) -> str:
    """Replace a missing value by the last known one of its window, if there is one.

    The last known step is a running maximum, which takes log2(length) steps: each looks twice as far back as the one
    before.
    """
    length = preparation.window.length if preparation.window else 1
    axis = builder.constant("carry/axis", np.array([1], np.int64))
    start, stop = (builder.constant(f"carry/{at}", np.array([at], np.int64)) for at in (0, length))
    none = builder.constant("carry/none", np.array(-1, np.int64))
    steps = builder.constant("carry/steps", np.arange(length).reshape(1, -1, 1))
    missing = builder.node("IsNaN", [raw], "carry/missing")
    last = builder.node("Where", [missing, none, steps], "carry/known")
    for back in (1 << power for power in range((length - 1).bit_length())):
        pads = builder.constant(f"carry/pads/{back}", np.array([back, 0], np.int64))
        padded = builder.node("Pad", [last, pads, none, axis], f"carry/padded/{back}")
        earlier = builder.node("Slice", [padded, start, stop, axis], f"carry/earlier/{back}")
        last = builder.node("Max", [last, earlier], f"carry/last/{back}")
    zero = builder.constant("carry/zero", np.array(0, np.int64))
    known = builder.node("Max", [last, zero], "carry/place")
    return builder.node("GatherElements", [raw, known], "carry/carried", axis=1)


def _categorical(builder: GraphBuilder, preparation: Preparation) -> None:
    parts = preparation.categorical
    if not parts:
        _nothing(builder, preparation.columns[0], "categorical", onnx.TensorProto.INT64)
        return
    indices = [_index(builder, part) for part in parts]
    _columns(builder, indices, "categorical/stacked", CORE_PREFIX + "categorical")


def _words(builder: GraphBuilder, preparation: Preparation) -> None:
    parts = []
    for at, (text, offsets) in enumerate(zip(preparation.texts, word_offsets(preparation.texts), strict=True)):
        output = f"{builder.prefix}words/{at}"
        model = preparation.ngrams[text.name]
        nodes, constants = word_nodes(model, text.name, text.length, output, f"{output}/", *offsets)
        builder.nodes += nodes
        builder.constants += constants
        parts.append(output)
    builder.node("Concat", parts, "words", output=CORE_PREFIX + "words", axis=1)


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
