"""Converts the gRPC messages of the Open Inference Protocol to requests, and predictions to messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.errors import DataError
from models.inference.tensors import BYTES, bytes_of_tensor, checked_shape, tensor_of_bytes, tensor_of_json, text_of
from models.serving.open_inference import PREDICTION_ID, InferenceRequest, check_supported, timeout_of
from tasks.serve.answering import PredictResponse
from tasks.serve.grpc.messages import message

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
"""The message field for the elements of each datatype; FP16 has none."""


def inference_of(request: Any) -> InferenceRequest:
    """Convert a `ModelInferRequest`; if the inputs are raw bytes, the outputs will be raw bytes too.

    Raises:
        DataError: The message does not follow the protocol.
    """
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise DataError(f"got {len(raw)} raw_input_contents for {len(request.inputs)} inputs: expected one for each")
    for tensor in (*request.inputs, *request.outputs):
        check_supported(tensor.parameters, tensor.name)
    tensors: dict[str, np.ndarray] = {}
    for index, tensor_input in enumerate(request.inputs):
        if tensor_input.name in tensors:
            raise DataError(f"input {tensor_input.name[:60]!r} is there twice: send each input once")
        tensors[tensor_input.name] = _tensor(tensor_input, raw[index] if raw else None)
    timeout = request.parameters.get("timeout")
    return InferenceRequest(
        tensors,
        request.id,
        dict.fromkeys((output.name for output in request.outputs), bool(raw)) or None,
        bool(raw),
        timeout_of(timeout and _value(timeout)),
    )


def response_of(inference: InferenceRequest, answer: PredictResponse) -> Any:
    """Build the `ModelInferResponse` to a request."""
    served, outputs = answer.served, answer.answer.outputs
    response = message("ModelInferResponse")(model_name=served.project, model_version=served.version, id=inference.id)
    response.parameters[PREDICTION_ID].string_param = answer.key
    dtypes = {port.name: port.dtype for port in served.outputs}
    for name in inference.outputs or outputs:
        values = outputs[name]
        output = response.outputs.add(name=name, datatype=dtypes[name], shape=values.shape)
        if inference.binary or dtypes[name] not in _CONTENTS:
            response.raw_output_contents.append(bytes_of_tensor(values))
        else:
            flat = values.ravel().tolist()
            elements = [value.encode() for value in flat] if dtypes[name] == BYTES else flat
            getattr(output.contents, _CONTENTS[dtypes[name]]).extend(elements)
    return response


def _tensor(tensor: Any, raw: bytes | None) -> np.ndarray:
    name, dtype = tensor.name[:60], tensor.datatype
    shape = checked_shape(list(tensor.shape), dtype, name)
    if raw is not None:
        if tensor.HasField("contents"):
            raise DataError(f"input {name!r}: got contents and raw_input_contents, expected one of them")
        return tensor_of_bytes(raw, dtype, shape, name)
    if dtype not in _CONTENTS:
        raise DataError(f"input {name!r}: {dtype} has no contents: send raw_input_contents")
    elements = list(getattr(tensor.contents, _CONTENTS[dtype]))
    if dtype == BYTES:
        elements = [text_of(element, name) for element in elements]
    return tensor_of_json(elements, dtype, shape, name)


def _value(parameter: Any) -> Any:
    return getattr(parameter, parameter.WhichOneof("parameter_choice") or "string_param")
