"""The Open Inference Protocol (v2) over HTTP: parses requests, writes responses, describes models.

Source: Open Inference Protocol, specification/protocol/inference_rest.md; Triton's "Binary Tensor Data Extension",
"Schedule Policy Extension" (`timeout`), "Classification Extension" and "Shared-Memory Extension" (both refused).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from models.errors import DataError
from models.inference.input_schema import listed
from models.inference.row_values import shown
from models.inference.tensors import (
    TensorSpec,
    bytes_of_tensor,
    checked_shape,
    json_of_tensor,
    tensor_of_bytes,
    tensor_of_json,
)
from models.serving.json_pieces import parsed_in_pieces

PLATFORM = "onnx_onnxv1"
EXTENSIONS = ["binary_tensor_data"]
PREDICTION_ID = "prediction_id"
"""The response parameter with the prediction id for `/feedback`; for several rows it is the prefix of their ids."""
_NOT_SUPPORTED = {
    "classification": "ask for the output as it is: an output of probabilities has one for each class",
    "shared_memory_region": "send and ask for data in the body",
}
"""Unsupported tensor parameters that would change the response, and the alternative to each."""


@dataclass(frozen=True)
class InferenceRequest:
    """A request, independent of the transport of the protocol.

    Args:
        tensors: Arrays by the names of inputs.
        id: The caller's id; empty if there is none.
        outputs: The requested outputs, and whether as bytes; None for all.
        binary: Whether outputs are sent as bytes if `outputs` does not say.
        timeout_s: Timeout of the request in seconds; None for no timeout.
    """

    tensors: Mapping[str, np.ndarray]
    id: str = ""
    outputs: Mapping[str, bool] | None = None
    binary: bool = False
    timeout_s: float | None = None

    def check_outputs(self, ports: Sequence[TensorSpec]) -> None:
        """Refuse requested outputs that the model does not have.

        Raises:
            DataError: There is no such output.
        """
        names = [port.name for port in ports]
        for name in self.outputs or ():
            if name not in names:
                raise DataError(f"the model has no output {name[:60]!r}: there is {listed(names)}")


@dataclass(frozen=True)
class EncodedBody:
    """A body and the length of its JSON, if bytes follow the JSON; None if the body is JSON alone."""

    body: bytes
    json_bytes: int | None = field(default=None)


def inference_of(body: bytes, json_bytes: int | None = None) -> InferenceRequest:
    """Parse a request from its body.

    Args:
        body: JSON, and then the bytes of tensors.
        json_bytes: The length of the JSON; None if the whole body is JSON.

    Raises:
        DataError: The body does not follow the protocol.
    """
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise DataError(
            f"Inference-Header-Content-Length: got {json_bytes}, expected the bytes of the JSON, at most the "
            f"{len(body)} of the body"
        )
    view = memoryview(body)
    try:
        document = parsed_in_pieces(body if json_bytes is None else body[:json_bytes], orjson.loads)
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"the body is not JSON ({error}): correct it, or say its length in Inference-Header-Content-Length"
        ) from None
    request = _object(document, "the body")
    tensors = _tensors(_list(request.get("inputs"), "inputs"), view[len(body) if json_bytes is None else json_bytes :])
    parameters = _object(request.get("parameters", {}), "parameters")
    outputs = _list(request.get("outputs", []), "outputs")
    binary = parameters.get("binary_data_output", False) is True
    return InferenceRequest(
        tensors,
        _text(request.get("id", ""), "id"),
        dict(_output(value, binary) for value in outputs) if outputs else None,
        binary,
        timeout_of(parameters.get("timeout")),
    )


def timeout_of(micros: Any) -> float | None:
    """Return the parameter `timeout` in seconds; None if there is none.

    Raises:
        DataError: The value is no whole number of microseconds, or below 0.
    """
    if micros is None:
        return None
    try:
        seconds = int(micros) / 1e6
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if seconds < 0:
        raise DataError(f"parameter `timeout`: got {shown(micros)}, expected whole microseconds, 0 for no limit")
    return seconds or None


def check_supported(parameters: Collection[str], tensor: str) -> None:
    """Refuse a tensor parameter that would change the meaning of the response.

    Raises:
        DataError: Names the parameter and the alternative.
    """
    for name, cure in _NOT_SUPPORTED.items():
        if name in parameters:
            raise DataError(f"{tensor[:60]!r}: parameter `{name}` is not supported: leave it out; {cure}")


def written(
    inference: InferenceRequest,
    outputs: Mapping[str, np.ndarray],
    ports: Sequence[TensorSpec],
    name: str,
    version: str,
    key: str,
) -> EncodedBody:
    """Return the response to a request.

    Args:
        inference: The request.
        outputs: All output arrays of the model.
        ports: The specifications of the outputs.
        name: Name of the model.
        version: The version that predicted.
        key: Id of the prediction in the prediction log.
    """
    dtypes = {port.name: port.dtype for port in ports}
    parts, tails = [], []
    for output in inference.outputs or outputs:
        values = outputs[output]
        tensor: dict[str, Any] = {"name": output, "shape": values.shape, "datatype": dtypes[output]}
        if (inference.outputs or {}).get(output, inference.binary):
            tails.append(bytes_of_tensor(values))
            tensor["parameters"] = {"binary_data_size": len(tails[-1])}
        else:
            tensor["data"] = json_of_tensor(values)
        parts.append(tensor)
    answer: dict[str, Any] = {"model_name": name, "model_version": version}
    if inference.id:
        answer["id"] = inference.id
    answer |= {"parameters": {PREDICTION_ID: key}, "outputs": parts}
    head = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return EncodedBody(b"".join([head, *tails]), len(head)) if tails else EncodedBody(head)


def described(
    name: str, versions: Sequence[str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> dict[str, Any]:
    """Return a model's metadata."""
    return {
        "name": name,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": [_port(port) for port in inputs],
        "outputs": [_port(port) for port in outputs],
    }


def _port(port: TensorSpec) -> dict[str, Any]:
    return {"name": port.name, "datatype": port.dtype, "shape": list(port.shape)}


def _tensors(inputs: list[Any], tail: memoryview) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for value in inputs:
        tensor = _object(value, "an input")
        name = _text(tensor.get("name"), "name of an input")
        if name in tensors:
            raise DataError(f"input {name[:60]!r} is there twice: send each input once")
        dtype = tensor.get("datatype")
        shape = checked_shape(tensor.get("shape"), dtype, name[:60])
        parameters = _object(tensor.get("parameters", {}), f"parameters of {name[:60]!r}")
        check_supported(parameters, name)
        size = parameters.get("binary_data_size")
        if size is None:
            tensors[name] = tensor_of_json(tensor.get("data"), str(dtype), shape, name[:60])
            continue
        if type(size) is not int or not 0 <= size <= len(tail):
            raise DataError(
                f"input {name[:60]!r}: got binary_data_size {shown(size)}, expected the bytes of this tensor, at most "
                f"the {len(tail)} that are left"
            )
        tensors[name] = tensor_of_bytes(tail[:size], str(dtype), shape, name[:60])
        tail = tail[size:]
    if len(tail):
        raise DataError(f"{len(tail)} bytes follow the last tensor: expected none; look at binary_data_size")
    return tensors


def _output(value: Any, binary: bool) -> tuple[str, bool]:
    output = _object(value, "an output")
    name = _text(output.get("name"), "name of an output")
    parameters = _object(output.get("parameters", {}), f"parameters of {name[:60]!r}")
    check_supported(parameters, name)
    return name, parameters.get("binary_data", binary) is True


def _object(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{key}: got {shown(value)}, expected an object")
    return value


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"`{key}`: got {shown(value)}, expected a list")
    return value


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{key}: got {shown(value)}, expected text")
    return value
