"""The descriptors of the gRPC messages are what protoc makes of their .proto, whatever its version."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

FOLDER = Path("tasks/serve/grpc")


def test_the_descriptors_are_fresh(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    folder, made = root / FOLDER, tmp_path / "made.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(folder), f"--descriptor_set_out={made}"]
    subprocess.run([*command, "open_inference.proto"], check=True, timeout=60)
    fresh, stored = (
        FileDescriptorSet.FromString(path.read_bytes()) for path in (made, folder / "open_inference.binpb")
    )
    assert stored == fresh, "run `infra/protos.sh`"


@pytest.mark.parametrize("first", ["tasks.serve.grpc.messages", "tritonclient.grpc"])
def test_a_client_and_the_server_can_be_imported_in_either_order(root: Path, first: str) -> None:
    """Generated code of both would clash in protobuf's default pool, by the names of the messages."""
    made = "from tasks.serve.grpc.messages import message; message('ModelInferRequest')"
    code = f"import {first}; {made}; import tritonclient.grpc"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=root)
