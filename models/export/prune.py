"""Structured pruning: whole hidden units are removed, so that the file and each call become smaller.

Setting single weights to zero would gain nothing: ONNX Runtime multiplies by zeros like by other numbers, and stores
them. A removed unit is replaced by its mean, which is added to the bias of the next layer.

Source: Hao Li et al. (2017), Pruning Filters for Efficient ConvNets (units by the size of their weights); the mean as
replacement and the spread in the score: Evci et al. (2018), Mean Replacement Pruning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from models.errors import TrainingError
from models.export.layers import FLOAT, Layers, is_plain, is_upright
from models.inference.predict import Feed

DENSE = ("Gemm", "MatMul")
UNITWISE = frozenset({"Relu", "Gelu", "Sigmoid", "Tanh", "Elu", "Selu", "LeakyRelu", "Softplus", "Identity", "Dropout"})
PAIRWISE = frozenset({"Add", "Mul"})


@dataclass
class PrunableUnits:
    """Units between dense layers: `source` makes them, only `sinks` read them, `vectors` hold a number for each."""

    source: onnx.NodeProto
    num_units: int
    sinks: list[onnx.NodeProto] = field(default_factory=list)
    vectors: set[str] = field(default_factory=set)


def hidden_units(layers: Layers) -> list[PrunableUnits]:
    """Return the hidden layers that can be made narrower: only unit-wise operators lie between the dense layers."""
    units = []
    for node in layers.nodes(*DENSE):
        weight = layers.array(node.input[1])
        if weight is None or weight.ndim != 2 or not is_plain(node):
            continue
        hidden = PrunableUnits(node, weight.shape[0 if is_upright(node) else 1])
        if len(node.input) > 2:
            hidden.vectors.add(node.input[2])
        if _follow(layers, hidden) and hidden.sinks and _owned(layers, hidden):
            units.append(hidden)
    return units


def pruned(model: onnx.ModelProto, calibration: Sequence[Feed], share: float) -> onnx.ModelProto:
    """Return a copy without the given share of each hidden layer's units, those with the lowest scores.

    Args:
        model: The exported model.
        calibration: Training rows as inputs of the graph, on which the units are scored.
        share: Share of a layer's units to remove.

    Raises:
        TrainingError: No hidden layer can be made narrower.
    """
    smaller = onnx.ModelProto()
    smaller.CopyFrom(model)
    layers = Layers(smaller)
    units = hidden_units(layers)
    if not units:
        raise TrainingError("the net has no hidden units between dense layers that could be taken out")
    met = _activations(model, [hidden.sinks[0].input[0] for hidden in units], calibration)
    for hidden, values in reversed(list(zip(units, met, strict=True))):
        # In reverse order: the bias added to a layer for its inputs' means then has the layer's new width.
        _narrow(layers, hidden, values, share)
    del smaller.graph.value_info[:]
    return smaller


def _follow(layers: Layers, hidden: PrunableUnits) -> bool:
    """Collect the nodes that read the units; return False if a node needs all of them."""
    todo, seen = [hidden.source.output[0]], {hidden.source.output[0]}
    while todo:
        tensor = todo.pop()
        for node in layers.readers(tensor):
            if node.op_type in DENSE and node.input[0] == tensor and _is_sink(layers, node, tensor):
                hidden.sinks += [node] * all(sink is not node for sink in hidden.sinks)
                continue
            if not _is_unitwise(layers, node, hidden):
                return False
            fresh = [name for name in node.output if name and name not in seen]
            todo += fresh
            seen.update(fresh)
    read = {node.input[0] for node in hidden.sinks}
    return len(read) == 1 and not seen & {value.name for value in layers.graph.output}


def _is_sink(layers: Layers, node: onnx.NodeProto, tensor: str) -> bool:
    weight = layers.array(node.input[1])
    return weight is not None and weight.ndim == 2 and is_plain(node) and list(node.input).count(tensor) == 1


def _is_unitwise(layers: Layers, node: onnx.NodeProto, hidden: PrunableUnits) -> bool:
    if node.op_type in UNITWISE:
        return True
    if node.op_type not in PAIRWISE:
        return False
    for name in node.input:
        value = layers.array(name)
        if value is None:
            continue
        if value.size == 1:
            continue
        if value.shape != (hidden.num_units,):
            return False
        hidden.vectors.add(name)
    made_here = [name for name in node.input if layers.array(name) is None]
    return all(_comes_from(layers, name, hidden.source.output[0]) for name in made_here)


def _comes_from(layers: Layers, tensor: str, source: str) -> bool:
    """Return True if a tensor depends on the units alone: a sum with another tensor (a residual) needs all units."""
    if tensor == source:
        return True
    makers = [node for node in layers.graph.node if tensor in node.output]
    inputs = [name for node in makers for name in node.input if layers.array(name) is None]
    fits = all(node.op_type in UNITWISE | PAIRWISE for node in makers)
    return bool(inputs) and fits and all(_comes_from(layers, name, source) for name in inputs)


def _owned(layers: Layers, hidden: PrunableUnits) -> bool:
    """Return True if each constant to be cut has one reader, so that cutting it changes nothing else."""
    cut = {hidden.source.input[1], *hidden.vectors}
    cut |= {name for node in hidden.sinks for name in node.input[1:] if name in layers.constants}
    return all(len(layers.readers(name)) == 1 for name in cut)


def _activations(model: onnx.ModelProto, tensors: list[str], calibration: Sequence[Feed]) -> list[np.ndarray]:
    """Return the units' values on the rows, (position, unit) for each tensor."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(helper.make_tensor_value_info(name, FLOAT, None) for name in dict.fromkeys(tensors))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    running = onnxruntime.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])
    parts = [running.run(tensors, dict(feed)) for feed in calibration]
    return [np.concatenate([array.reshape(-1, array.shape[-1]) for array in some]) for some in zip(*parts, strict=True)]


def _narrow(layers: Layers, hidden: PrunableUnits, values: np.ndarray, share: float) -> None:
    weights = [_by_input(node, layers.array(node.input[1])) for node in hidden.sinks]
    mean = values.mean(axis=0, dtype=np.float64)
    reach = sum(np.square(weight.astype(np.float64)).sum(axis=1) for weight in weights)
    score = values.std(axis=0, dtype=np.float64) * np.sqrt(reach)
    indices = np.sort(np.argsort(-score, kind="stable")[: max(1, round(hidden.num_units * (1 - share)))])
    gone = np.setdiff1d(np.arange(hidden.num_units), indices)
    for node, weight in zip(hidden.sinks, weights, strict=True):
        shift = (mean[gone] @ weight[gone].astype(np.float64)).astype(np.float32)
        layers.put(node.input[1], weight[indices].T if is_upright(node) else weight[indices])
        _add_bias(layers, node, shift)
    source = layers.array(hidden.source.input[1])
    assert source is not None
    layers.put(hidden.source.input[1], source[indices] if is_upright(hidden.source) else source[:, indices])
    for name in hidden.vectors:
        vector = layers.array(name)
        assert vector is not None
        if vector.shape == (hidden.num_units,):
            layers.put(name, vector[indices])


def _add_bias(layers: Layers, node: onnx.NodeProto, shift: np.ndarray) -> None:
    """Add the removed units' mean contribution to the bias; `_owned` made sure that no other node reads the bias."""
    bias = layers.array(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
    if bias is not None:
        layers.put(node.input[2], bias + shift)
        return
    fresh = f"{node.name}/means"
    layers.put(fresh, shift)
    output, product = node.output[0], f"{node.name}/narrow"
    node.output[0] = product
    index = next(place for place, node_of_layer in enumerate(layers.graph.node) if node_of_layer.name == node.name)
    layers.graph.node.insert(index + 1, helper.make_node("Add", [product, fresh], [output], name=fresh))


def _by_input(node: onnx.NodeProto, weight: np.ndarray | None) -> np.ndarray:
    """Return a dense layer's weights as (input, output)."""
    assert weight is not None
    return weight.T if is_upright(node) else weight
