#!/usr/bin/env bash
# Makes the descriptors of the gRPC messages anew from their .proto; needs grpcio-tools.
set -euo pipefail
cd "$(dirname "$0")/../tasks/serve/grpc"
"${PYTHON:-../../../.venv/bin/python}" -m grpc_tools.protoc -I . --descriptor_set_out=open_inference.binpb open_inference.proto
