"""The whole exported graph: preparation, core and head in one ONNX model.

The same weights, preparation and metadata always give the same bytes, so that records can store the file's hash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from onnx import helper

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.export.head_graph import graph_outputs, head_part
from models.export.preparation_graph import graph_inputs, preparation_part
from models.inference.names import refuse_taken_names
from models.inference.portable import PREPARATION_KEY, ROW_BYTES_KEY
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.inputs.nodes import opsets_of
from models.ngrams.graph import ML_DOMAIN

OPSET = 20
ML_OPSET = 5
IR_VERSION = 10
LIMIT_BYTES = (1 << 31) - 1


def assemble(preparation: Preparation, core: GraphBuilder, output: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
    """Join the three parts into a checked model.

    Args:
        preparation: The preparation schema of the model; it is also stored in the file's metadata.
        core: The net or the trees; reads `core/numeric` and so on, writes `output`.
        output: Name of the core's output (batch, num_outputs).
        metadata: Further keys for the file's metadata, such as `loopline.project`; no times.

    Raises:
        UsageError: An input column has the name of an output of the graph.
        TrainingError: The graph is over ONNX's 2 GB, or the checker refuses it.
    """
    refuse_taken_names(preparation)
    read = {name.removeprefix(CORE_PREFIX) for node in core.nodes for name in node.input}
    parts = [preparation_part(preparation, read), core, head_part(preparation, output)]
    graph = helper.make_graph(
        [node for part in parts for node in part.nodes],
        "loopline",
        graph_inputs(preparation),
        graph_outputs(preparation),
        [constant for part in parts for constant in part.constants],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)]
    opsets += [helper.make_opsetid(*opset) for opset in opsets_of(preparation.inputs)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="loopline", producer_version="1"
    )
    _check(model)
    row_bytes = _row_bytes(model, preparation.characters.length if preparation.characters else 1)
    properties = {**metadata, PREPARATION_KEY: preparation.model_dump_json(), ROW_BYTES_KEY: str(row_bytes)}
    helper.set_model_props(model, dict(sorted(properties.items())))
    return model


def _row_bytes(model: onnx.ModelProto, length: int) -> int:
    """Return the bytes of the largest tensor that a graph makes of one row, of text of one window, as far as is known.

    The shapes of all tensors follow from those of the inputs; those inside a loop over texts do not count.
    """
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in model.graph.input]
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = {"batch": 1, "length": length}[dim.dim_param]
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return max((_num_bytes(value.type.tensor_type) for value in inferred.graph.value_info), default=0)


def _num_bytes(tensor: onnx.TypeProto.Tensor) -> int:
    """Return the bytes of a tensor; 0 if a side is not known, or its values have no fixed size."""
    sides = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return 0
    return int(math.prod(sides) * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize)


def _check(model: onnx.ModelProto) -> None:
    size_bytes = model.ByteSize()
    if size_bytes > LIMIT_BYTES:
        raise TrainingError(f"export: the model takes {size_bytes:,} bytes, over ONNX's 2 GB: use a smaller net")
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise TrainingError(
            f"export: the ONNX checker refuses the graph ({error}): replace what is unusual in the net's forward"
        ) from error
