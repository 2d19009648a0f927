"""The Open Inference Protocol over HTTP and gRPC: what its specification demands, and the client that people use.

Source: Open Inference Protocol, specification/protocol/inference_rest.md and inference_grpc.md; Triton's "Binary
Tensor Data Extension". Each test quotes what it holds the server to.
"""

import asyncio
import json
import struct
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from tasks.host import ports
from tasks.host.workspace import Workspace
from tasks.serve.grpc.messages import SERVICE, message
from tasks.serve.grpc.server import MOST_CALLS
from tests.over_grpc import call, typed_request
from tests.serving import LiveServer, Reply, crown, live_server

DATATYPES = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"}
X = {"name": "x", "shape": [2], "datatype": "FP64", "data": [1, None]}
C = {"name": "c", "shape": [2], "datatype": "BYTES", "data": ["u", "w"]}
CHANCES = np.array([[0.26894143, 0.7310586], [0.5, 0.5]], np.float32)


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return ports.any_free([])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, grpc_port: int) -> Iterator[LiveServer]:
    """Version 2 of `tiny`, with 1 behind it; a model of each other kind."""
    workspace = Workspace(tmp_path_factory.mktemp("serve"))
    workspace.make()
    crown(workspace, "tiny", "1")
    for task in ("image", "series", "language"):
        crown(workspace, task, "1", task)
    with live_server(
        workspace, "tiny", "image", "series", "language", arguments=("--grpc-port", str(grpc_port))
    ) as live:
        crown(workspace, "tiny", "2")
        live.wait_until(lambda: live.get("/v2/models/tiny/versions/2/ready").status == 200)
        yield live


def infer(server: LiveServer, path: str = "/v2/models/tiny/infer", **request: Any) -> Reply:
    return server.post(path, {"inputs": [X, C], **request})


# --- What the specification says over HTTP


def test_the_server_live_and_ready_endpoints_say_so(server: LiveServer) -> None:
    """`$live_server_response = {"live": $bool}`, and the same of ready."""
    for address in ("live", "ready"):
        assert server.get(f"/v2/health/{address}").ok().json["live"] is True


def test_server_metadata_names_server_version_and_extensions(server: LiveServer) -> None:
    """A successful server metadata request is indicated by a 200; Triton reports "binary_tensor_data"."""
    told = server.get("/v2").ok().json
    assert {name: type(value) for name, value in told.items()} == {"name": str, "version": str, "extensions": list}
    assert "binary_tensor_data" in told["extensions"]


def test_model_metadata_describes_each_tensor(server: LiveServer) -> None:
    """Variable-size dimensions are specified as -1; the datatypes are those of the table."""
    for name in ("tiny", "image", "series", "language"):
        told = server.get(f"/v2/models/{name}").ok().json
        assert (told["name"], type(told["platform"])) == (name, str)
        for tensor in [*told["inputs"], *told["outputs"]]:
            assert tensor["datatype"] in {*DATATYPES, "BYTES"}
            assert tensor["shape"][0] == -1


def test_every_version_that_metadata_lists_may_be_requested(server: LiveServer) -> None:
    """ "versions": the model versions that may be explicitly requested via the appropriate endpoint."""
    versions = server.get("/v2/models/tiny").json["versions"]
    assert sorted(versions) == ["1", "2"]
    for version in versions:
        place = f"/v2/models/tiny/versions/{version}"
        assert server.get(place).ok().json["name"] == "tiny"
        assert server.get(f"{place}/ready").ok().json == {"name": "tiny", "ready": True}
        assert infer(server, f"{place}/infer").ok().json["model_version"] == version


def test_without_a_version_the_server_chooses_and_says_which(server: LiveServer) -> None:
    """If a version is not provided the server may choose a version based on its own policies."""
    told = infer(server).ok().json
    assert (told["model_name"], told["model_version"]) == ("tiny", "2")


def test_an_id_must_be_returned(server: LiveServer) -> None:
    """Optional, but if specified this identifier must be returned in the response."""
    assert infer(server, id="42").ok().json["id"] == "42"
    assert "id" not in infer(server).ok().json


def test_the_outputs_that_are_requested_are_returned_and_all_if_none_is(server: LiveServer) -> None:
    """Optional, if not specified all outputs produced by the model will be returned."""
    one = infer(server, outputs=[{"name": "probabilities"}]).ok().json["outputs"]
    assert [output["name"] for output in one] == ["probabilities"]
    both = infer(server).ok().json["outputs"]
    assert [output["name"] for output in both] == ["label", "probabilities"]


def test_data_is_row_major_and_shape_and_datatype_describe_it(server: LiveServer) -> None:
    """Tensor data must be flattened to a one-dimensional, row-major order of the tensor elements."""
    label, chances = infer(server).ok().json["outputs"]
    assert (label["shape"], label["datatype"], label["data"]) == ([2], "BYTES", ["yes", "no"])
    assert (chances["shape"], chances["datatype"]) == ([2, 2], "FP32")
    np.testing.assert_allclose(chances["data"], CHANCES.ravel(), rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/no", 404),
        ("GET", "/v2/models/no/ready", 404),
        ("GET", "/v2/models/tiny/versions/9", 404),
        ("GET", "/v2/models/tiny/versions/9/ready", 404),
        ("POST", "/v2/models/no/infer", 404),
        ("POST", "/v2/models/tiny/versions/9/infer", 404),
        ("GET", "/v2/models/tiny/infer", 405),
        ("POST", "/v2", 405),
        ("GET", "/v2/nothing", 404),
    ],
)
def test_a_failed_request_must_have_an_error_status_and_an_error_object(
    server: LiveServer, method: str, path: str, status: int
) -> None:
    """Must be indicated by an HTTP error status; the HTTP body must contain the error object."""
    reply = server.ask(method, path, {"inputs": [X, C]} if method == "POST" else None)
    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    assert list(reply.json) == ["error"]
    assert isinstance(reply.json["error"], str)


@pytest.mark.parametrize(
    "request_",
    [
        {"inputs": [X]},
        {"inputs": [X, {**C, "shape": [3]}]},
        {"inputs": [X, {**C, "datatype": "FP64"}]},
        {"inputs": [X, {**C, "datatype": "TEXT"}]},
        {"inputs": [X, {**C, "data": [["u"], ["v", "w"]]}]},
        {"inputs": [{**X, "data": ["1", "2"]}, C]},
        {"inputs": [{**X, "shape": [1], "data": [1]}, C]},
        {"inputs": [X, C, {**X, "name": "more"}]},
        {"inputs": [X, C], "outputs": [{"name": "no"}]},
        {"inputs": [X, C], "id": "a" * 201},
        {"id": "no inputs"},
        [],
    ],
)
def test_a_request_that_the_model_cannot_take_is_the_callers_mistake(server: LiveServer, request_: Any) -> None:
    reply = server.post("/v2/models/tiny/infer", request_)
    assert (reply.status, list(reply.json)) == (400, ["error"])


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 9999, b'{"inputs": [NaN]}', b"\xff\xfe"])
def test_a_body_that_is_no_json_is_the_callers_mistake(server: LiveServer, body: bytes) -> None:
    reply = server.ask("POST", "/v2/models/tiny/infer", body)
    assert (reply.status, list(reply.json)) == (400, ["error"])


# --- The binary tensor data extension


def binary(inputs: list[dict[str, Any]], tail: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + tail, {"Inference-Header-Content-Length": str(len(head))}


def bytes_of(texts: list[str]) -> bytes:
    """An element is represented by a 4-byte unsigned integer giving the length followed by the actual bytes."""
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


def test_tensors_come_and_go_as_bytes_in_the_order_of_the_json(server: LiveServer) -> None:
    """The header must be provided to give the length of the JSON; Content-Length the full body; little-endian."""
    names = bytes_of(["u", "w"])
    inputs = [
        {"name": "c", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(names)}},
        {"name": "x", "shape": [2], "datatype": "FP64", "parameters": {"binary_data_size": 16}},
    ]
    tail = names + np.array([1, np.nan], "<f8").tobytes()
    body, headers = binary(inputs, tail, parameters={"binary_data_output": True})
    reply = server.ask("POST", "/v2/models/tiny/infer", body, headers).ok()
    assert reply.headers["content-type"] == "application/octet-stream"
    assert int(reply.headers["content-length"]) == len(reply.body)
    length = int(reply.headers["inference-header-content-length"])
    label, chances = json.loads(reply.body[:length])["outputs"]
    assert (label["parameters"], chances["parameters"]) == ({"binary_data_size": 13}, {"binary_data_size": 16})
    assert "data" not in label
    assert reply.body[length:] == bytes_of(["yes", "no"]) + CHANCES.tobytes()


def test_binary_data_of_an_output_overrides_the_requests(server: LiveServer) -> None:
    """If "binary_data" is specified on an output it overrides this setting."""
    outputs = [{"name": "label", "parameters": {"binary_data": False}}, {"name": "probabilities"}]
    reply = infer(server, outputs=outputs, parameters={"binary_data_output": True}).ok()
    label, chances = json.loads(reply.body[: int(reply.headers["inference-header-content-length"])])["outputs"]
    assert label["data"] == ["yes", "no"]
    assert chances["parameters"] == {"binary_data_size": 16}


def test_without_binary_data_there_is_no_header(server: LiveServer) -> None:
    reply = infer(server).ok()
    assert "inference-header-content-length" not in reply.headers
    assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("length", ["5", "99999", "-1", "x", "1" * 30])
def test_a_wrong_header_length_is_the_callers_mistake(server: LiveServer, length: str) -> None:
    body = json.dumps({"inputs": [X, C]}).encode()
    reply = server.ask("POST", "/v2/models/tiny/infer", body, {"Inference-Header-Content-Length": length})
    assert (reply.status, list(reply.json)) == (400, ["error"])


# --- tritonclient


@pytest.fixture(scope="module")
def over_http(server: LiveServer) -> Iterator[triton_http.InferenceServerClient]:
    client = triton_http.InferenceServerClient(f"127.0.0.1:{server.port}")
    yield client
    client.close()


@pytest.fixture(scope="module")
def over_grpc(server: LiveServer, grpc_port: int) -> Iterator[triton_grpc.InferenceServerClient]:
    client = triton_grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}")
    yield client
    client.close()


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A client, and its module."""
    return request.getfixturevalue(f"over_{request.param}"), {"http": triton_http, "grpc": triton_grpc}[request.param]


def tensors(module: Any, **values: np.ndarray) -> list[Any]:
    dtypes = {"f": "FP64", "O": "BYTES", "u": "UINT8"}
    made = []
    for name, array in values.items():
        made.append(module.InferInput(name, list(array.shape), dtypes[array.dtype.kind]))
        made[-1].set_data_from_numpy(array)
    return made


def rows(module: Any) -> list[Any]:
    return tensors(module, x=np.array([1, np.nan]), c=np.array(["u", "w"], object))


def test_a_client_finds_server_and_model(client: tuple[Any, Any]) -> None:
    found, _ = client
    assert found.is_server_live()
    assert found.is_server_ready()
    assert found.is_model_ready("tiny")
    assert found.is_model_ready("tiny", "1")
    told = found.get_model_metadata("tiny", "1")
    assert (told["name"] if isinstance(told, dict) else told.name) == "tiny"


def test_a_client_gets_arrays(client: tuple[Any, Any]) -> None:
    found, module = client
    result = found.infer("tiny", rows(module), request_id="q7")
    assert result.as_numpy("label").tolist() == [b"yes", b"no"]
    np.testing.assert_allclose(result.as_numpy("probabilities"), CHANCES, rtol=1e-6)
    told = result.get_response()
    assert (told["id"] if isinstance(told, dict) else told.id) == "q7"


def test_a_client_gets_the_output_and_the_version_that_it_asked_for(client: tuple[Any, Any]) -> None:
    found, module = client
    wanted = [module.InferRequestedOutput("probabilities")]
    result = found.infer("tiny", rows(module), model_version="1", outputs=wanted)
    assert result.as_numpy("label") is None
    assert result.as_numpy("probabilities").shape == (2, 2)
    told = result.get_response()
    assert (told["model_version"] if isinstance(told, dict) else told.model_version) == "1"


@pytest.mark.parametrize(
    ("name", "values", "output", "expected"),
    [
        ("image", {"image": np.zeros((1, 2, 3, 1), np.uint8)}, "label", [b"no"]),
        ("series", {"series": np.ones((1, 3, 2))}, "prediction", [6.0]),
        ("language", {"text": np.array(["ab", ""], object)}, "next_character", [b"c", b" "]),
    ],
)
def test_a_client_asks_models_of_every_kind(
    client: tuple[Any, Any], name: str, values: dict[str, np.ndarray], output: str, expected: list[Any]
) -> None:
    found, module = client
    assert found.infer(name, tensors(module, **values)).as_numpy(output).tolist() == expected


def test_a_client_hears_why_not(client: tuple[Any, Any]) -> None:
    found, module = client
    with pytest.raises(InferenceServerException, match="the model takes 'c': got 'x'"):
        found.infer("tiny", rows(module)[:1])
    with pytest.raises(InferenceServerException, match="version '9' is not loaded"):
        found.infer("tiny", rows(module), model_version="9")
    with pytest.raises(InferenceServerException, match="no model 'no'"):
        found.get_model_metadata("no")


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(over_http: triton_http.InferenceServerClient, algorithm: str) -> None:
    many = tensors(triton_http, x=np.ones(500), c=np.full(500, "u", object))
    result = over_http.infer(
        "tiny", many, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm
    )
    assert result.as_numpy("probabilities").shape == (500, 2)


def test_answers_over_http_may_be_json(over_http: triton_http.InferenceServerClient) -> None:
    wanted = [triton_http.InferRequestedOutput("probabilities", binary_data=False)]
    inputs = [triton_http.InferInput("x", [2], "FP64"), triton_http.InferInput("c", [2], "BYTES")]
    inputs[0].set_data_from_numpy(np.array([1.0, 0.0]), binary_data=False)
    inputs[1].set_data_from_numpy(np.array(["u", "w"], object), binary_data=False)
    np.testing.assert_allclose(
        over_http.infer("tiny", inputs, outputs=wanted).as_numpy("probabilities"), CHANCES, rtol=1e-6
    )


# --- What the specification says over gRPC beside that


def test_contents_of_a_tensors_own_type_are_answered_in_kind(server: LiveServer, grpc_port: int) -> None:
    """The data can be represented in "raw" bytes form or in the repeated type that matches the tensor's data type."""
    told = call(grpc_port, "ModelInfer", typed_request(id="q"))
    assert (told.id, told.model_version, list(told.raw_output_contents)) == ("q", "2", [])
    assert list(told.outputs[0].contents.bytes_contents) == [b"yes"]


def test_raw_contents_exclude_the_others(server: LiveServer, grpc_port: int) -> None:
    """If this field is specified then InferInputTensor::contents must not be specified for any input tensor."""
    with pytest.raises(grpc.RpcError) as refused:
        call(grpc_port, "ModelInfer", typed_request(raw_input_contents=[bytes(8), b""]))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_errors_are_indicated_by_the_status(server: LiveServer, grpc_port: int) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(grpc_port, "ModelReady", message("ModelReadyRequest")(name="no"))
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as refused:
        call(grpc_port, "ModelInfer", typed_request(id="a" * 201))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("content", [b"\xff\xff", b"\x0a\x02\xff\xfe", b"\x2a\x7f"])
def test_bytes_that_are_no_message_are_the_callers_mistake(server: LiveServer, grpc_port: int, content: bytes) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        for method in (f"/{SERVICE}/ModelInfer", "/grpc.health.v1.Health/Check"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(content, timeout=20)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        for method in (f"/{SERVICE}/Nothing", "/grpc.health.v1.Health/Watch"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(method)(b"", timeout=20)
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "Traceback" not in server.printed


def test_grpcs_own_health_checks_are_answered(server: LiveServer, grpc_port: int) -> None:
    """As the gRPC probe of Kubernetes asks: of the server, of the process, of one model."""
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "liveness", "tiny", SERVICE):
            told = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
            assert told.status == health_pb2.HealthCheckResponse.SERVING, service
        with pytest.raises(grpc.RpcError) as refused:
            stub.Check(health_pb2.HealthCheckRequest(service="no"), timeout=20)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_server_metadata_is_the_same_over_both(server: LiveServer, grpc_port: int) -> None:
    told = call(grpc_port, "ServerMetadata", message("ServerMetadataRequest")())
    assert server.get("/v2").json == server.get("/v2/").json == {
        "name": told.name, "version": told.version, "extensions": list(told.extensions)
    }  # fmt: skip


def test_calls_that_send_nothing_have_a_ceiling(server: LiveServer, grpc_port: int) -> None:
    """Each may hold a message in memory; half as many wait in the client of one connection, and further ones there."""
    ask = f"/{SERVICE}/ServerLive"

    def channel(number: int) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("number", number)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}", options=options)

    async def refused_beside() -> bool:
        async with channel(0) as first, channel(1) as second, channel(2) as third:
            calls = [silent.stream_unary(ask)() for silent in (first, second) for _ in range(MOST_CALLS // 2)]
            try:
                until = time.monotonic() + 20
                while time.monotonic() < until:
                    try:
                        await third.unary_unary(ask)(b"", timeout=20)
                    except grpc.aio.AioRpcError as error:
                        return error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                return False
            finally:
                for call in calls:
                    call.cancel()

    assert asyncio.run(refused_beside())
    server.wait_until(lambda: bool(call(grpc_port, "ServerLive", message("ServerLiveRequest")()).live))


def test_nothing_failed_on_the_way(server: LiveServer) -> None:
    assert "Traceback" not in server.printed, server.printed[-4000:]
