"""Conversion of a torch net to ONNX nodes, through torch.export with a dynamic batch."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.compose
import torch
from torch import nn

from models.data.preparation import Preparation
from models.errors import UserCodeError
from models.export.graph import OPSET
from models.export.recurrent import translations, with_whole_cells
from models.export.trained import net_of
from models.fitted_features.torch_graph import quiet_exporter, reason, strip_traces
from models.inputs.graph_builder import CORE_PREFIX, GraphBuilder
from models.nets.build import example_inputs
from models.nets.sizes import Sizes
from models.training.job import TrainingJob

EXAMPLE_ROWS = 3  # torch.export specialises 0 and 1; three also differs from most layer sizes


class _Positional(nn.Module):
    """Passes the named tensors by position: torch's exporter loses the shapes of `**inputs`."""

    def __init__(self, net: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.net = net
        self.names = names

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.net(**dict(zip(self.names, tensors, strict=True)))
        return output


def net_graphs(jobs: Sequence[TrainingJob], preparation: Preparation) -> list[tuple[GraphBuilder, str]]:
    """Return for each of the finished jobs, of equal settings, the nodes of its net, and the name of their output."""
    return net_parts([net_of(job, preparation) for job in jobs], preparation, jobs[0].model.net)


def net_part(net: nn.Module, preparation: Preparation, name: str = "") -> tuple[GraphBuilder, str]:
    """Return the net's nodes and the name of its output (batch, num_outputs), for text (batch, length, num_outputs).

    The net has the inputs that one of its resolved `name` has.

    Cost: 1 to 5 s of CPU, and 5 s more the first time in a process.

    Raises:
        UserCodeError: torch.export cannot trace the net, or it fixes the batch size.
    """
    return net_parts([net], preparation, name)[0]


def net_parts(nets: Sequence[nn.Module], preparation: Preparation, name: str = "") -> list[tuple[GraphBuilder, str]]:
    """Return what `net_part` returns for each of several nets that differ in their weights alone.

    Cost: that of one net, and .1 s for each further one.

    Raises:
        UserCodeError: torch.export cannot trace the net, or it fixes the batch size.
    """
    parts = []
    for model in _torch_export([net.eval() for net in nets], example_inputs(Sizes.of(preparation, name), EXAMPLE_ROWS)):
        strip_traces(model.graph)
        onnx.compose.add_prefix(model, CORE_PREFIX, inplace=True)
        builder = GraphBuilder(CORE_PREFIX, list(model.graph.node), list(model.graph.initializer))
        parts.append((builder, model.graph.output[0].name))
    return parts


def _torch_export(nets: Sequence[nn.Module], batch: dict[str, torch.Tensor]) -> list[onnx.ModelProto]:
    """Trace the first net, and give its graph the weights of the others before weights are folded into each other."""
    net, *further = [_Positional(with_whole_cells(net), list(batch)).eval() for net in nets]
    sizes = {0: torch.export.Dim("batch")}
    if "tokens" in batch:
        sizes[1] = torch.export.Dim("length", min=2)
    with quiet_exporter():
        try:
            program = torch.onnx.export(
                net,
                tuple(batch.values()),
                input_names=list(batch),
                output_names=["output"],
                dynamo=True,
                dynamic_shapes=(tuple(sizes for _ in batch),),
                opset_version=OPSET,
                custom_translation_table=translations(),
                verbose=False,
                optimize=not further,
            )
        except Exception as error:
            raise UserCodeError(_refusal(nets[0], reason(error))) from error
        assert program is not None  # it is for a file alone
        models = _with_weights(program, [net, *further]) if further else [program.model_proto]
    dims = models[0].graph.output[0].type.tensor_type.shape.dim
    if any(dims[size_index].HasField("dim_value") for size_index in sizes):
        raise UserCodeError(_refusal(nets[0], f"its output has a fixed {' or '.join(map(str, sizes.values()))}"))
    return models


def _with_weights(program: torch.onnx.ONNXProgram, nets: Sequence[nn.Module]) -> list[onnx.ModelProto]:
    """Return the traced graph with the weights of each net, then optimised."""
    traced, models = program.model, []
    for net in nets:
        program.model = traced.clone()
        weights = {name: tensor for name, tensor in net.state_dict().items() if name in traced.graph.initializers}
        program.apply_weights(weights)
        program.optimize()
        models.append(program.model_proto)
    return models


def _refusal(net: nn.Module, reason: str) -> str:
    return (
        f"export: torch cannot turn {type(net).__name__} into a graph for any batch size ({reason}): write its "
        "forward without branches on values and without the batch size (of text also the length) as a number"
    )
