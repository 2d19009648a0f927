import hashlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.export.graph import IR_VERSION, LIMIT_BYTES, OPSET, assemble
from models.inference.portable import PREPARATION_KEY, ROW_BYTES_KEY
from models.inputs.graph_builder import GraphBuilder
from tests.finished_jobs import table_preparation


def linear_core(num_outputs: int = 1) -> GraphBuilder:
    stretch = GraphBuilder("core/")
    weights = stretch.constant("weights", np.arange(2 * num_outputs, dtype=np.float32).reshape(2, num_outputs))
    stretch.node("MatMul", ["core/numeric", weights], "out")
    return stretch


def assembled(metadata: dict[str, str] | None = None) -> onnx.ModelProto:
    return assemble(table_preparation(), linear_core(), "core/out", metadata or {})


def test_the_file_says_what_it_is() -> None:
    model = assembled({"loopline.project": "flüge"})
    found = {entry.key: entry.value for entry in model.metadata_props}
    assert found["loopline.project"] == "flüge"
    assert Preparation.model_validate_json(found[PREPARATION_KEY]) == table_preparation()
    assert found[ROW_BYTES_KEY] == "16", "two numbers, float64"
    assert (model.ir_version, model.producer_name) == (IR_VERSION, "loopline")
    assert {opset.domain: opset.version for opset in model.opset_import} == {"": OPSET, "ai.onnx.ml": 5}


def test_the_same_model_has_the_same_bytes_whatever_the_order_of_its_metadata() -> None:
    keys = {"loopline.b": "2", "loopline.a": "1"}
    files = {
        assembled(dict(order)).SerializeToString(deterministic=True) for order in (keys.items(), reversed(keys.items()))
    }
    assert len(files) == 1


IN_ANOTHER_PROCESS = """
import hashlib, sys
import numpy as np
from models.data.preparation import Preparation
from models.export.graph import assemble
from models.inputs.graph_builder import GraphBuilder
{functions}
model = assemble(Preparation.model_validate_json(sys.argv[1]), linear_core(), "core/out", {metadata})
print(hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest())
"""


def test_the_same_model_has_the_same_bytes_in_another_process() -> None:
    """It imports what assembles a graph, which is not torch."""
    metadata = {"loopline.b": "2", "loopline.a": "1"}
    script = IN_ANOTHER_PROCESS.format(functions=inspect.getsource(linear_core), metadata=metadata)
    command = [sys.executable, "-c", script, table_preparation().model_dump_json()]
    there = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[4])
    here = hashlib.sha256(assembled(metadata).SerializeToString(deterministic=True)).hexdigest()
    assert there.stdout.strip() == here


def test_a_tensor_that_the_net_does_not_read_is_not_made() -> None:
    assert not [node for node in assembled().graph.node if node.op_type == "LabelEncoder" and "city" in node.input]


def test_a_graph_that_the_checker_refuses_is_a_training_error() -> None:
    with pytest.raises(TrainingError, match="checker refuses"):
        assemble(table_preparation(), linear_core(), "core/absent", {})


def test_the_limit_is_that_of_protobuf() -> None:
    assert LIMIT_BYTES == 2**31 - 1
