import logging
import warnings

from onnx import TensorProto, helper

from models.fitted_features.torch_graph import quiet_exporter, strip_traces


def test_no_trace_of_this_machine_is_left():
    node = helper.make_node("Identity", ["x"], ["y"], doc_string="/own/code/net.py:3")
    helper.set_metadata_props(node, {"pkg.torch.onnx.stack_trace": "/own/code/net.py:3"})
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch"]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:], doc_string="/own/code", value_info=values[1:])
    strip_traces(graph)
    assert b"/own/code" not in graph.SerializeToString()
    assert not graph.value_info


def test_the_exporter_is_silent_and_other_code_is_not():
    before = logging.getLogger("torch.onnx").level
    with quiet_exporter():
        warnings.warn("deprecated in torch", stacklevel=1)  # an error under pytest, if it is heard
    assert logging.getLogger("torch.onnx").level == before
