"""The user's `transform` as an ONNX graph of float64 columns: training runs the same graph as the served model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from models.errors import UserCodeError
from models.fitted_features.state import FeatureCode, FittedState
from models.project_spec import references

if TYPE_CHECKING:
    import torch

Columns = Mapping[str, np.ndarray]
OPSET = 20
SAMPLE = 2000
EXAMPLE_ROWS = 3  # torch.export specialises 0 and 1
PIECES = (1, 7)
"""Row counts of the first pieces of the sample that must give the same numbers as the whole."""


def transform_eagerly(code: FeatureCode, state: FittedState, columns: Columns) -> dict[str, np.ndarray]:
    """Return the features that the user's function makes of some rows, float64 (row,) each.

    Raises:
        UserCodeError: The function raised, or returned something else than a dict of a number for each row.
    """
    import torch

    assert code.transform is not None
    if not columns:
        raise UserCodeError(
            f"data.features.transform {code.transform}: there are no numbers to read: return a pandas Series by "
            "category from data.features.fit"
        )
    tensors = {name: torch.from_numpy(np.array(values)) for name, values in columns.items()}
    function = references.resolve(code.transform, code.base)
    with torch.no_grad():
        returned = references.call(function, code.transform, tensors, _state_tensors(state))
    where, num_rows = f"data.features.transform {code.transform}", len(next(iter(columns.values())))
    if not isinstance(returned, Mapping) or not returned:
        raise UserCodeError(
            f"{where}: got {type(returned).__name__}, expected a dict with a tensor of each name: end it with "
            "`return {'name': ...}`"
        )
    for name, values in returned.items():
        if not isinstance(name, str) or not name:
            raise UserCodeError(f"{where}: got the name {name!r}, expected a text: rename it")
        if not isinstance(values, torch.Tensor) or values.shape != (num_rows,):
            got = f"shape {tuple(values.shape)}" if isinstance(values, torch.Tensor) else type(values).__name__
            raise UserCodeError(f"{where}: {name!r} is {got}, expected a tensor of one number a row, ({num_rows},)")
    return {name: _number_or_missing(values).numpy() for name, values in returned.items()}


def transform_graph(code: FeatureCode, state: FittedState, columns: Columns) -> tuple[bytes, list[str]]:
    """Return the function as an ONNX graph of inputs `c0`, `c1`, ... and outputs `f0`, ..., and the features' names.

    The graph is tried on some rows: it must give what the function gives, for each row by itself.

    Raises:
        UserCodeError: torch cannot turn the function into a graph, or a row's features depend on other rows.

    Cost: 1 to 5 s of CPU, and 5 s more the first time in a process.
    """
    sample = _sample(columns)
    expected = transform_eagerly(code, state, sample)
    names = list(expected)
    graph = _exported(code, state, sample, len(names))
    if not _agree(run_graph(graph, names, sample), expected):
        raise UserCodeError(
            f"data.features.transform {code.transform}: the graph that torch makes of it gives other numbers, or they "
            "depend on chance: write it with operations of torch alone, without chance and without branches on values"
        )
    for rows in (sample, _with_gaps(sample)):
        _check_row_wise(code, graph, names, rows)
    return graph, names


def _sample(columns: Columns) -> dict[str, np.ndarray]:
    """Return rows from everywhere: the first rows of ordered data may be all alike, or have no missing values."""
    num_rows = len(next(iter(columns.values())))
    places = np.unique(np.linspace(0, num_rows - 1, SAMPLE).astype(np.int64))
    return {name: values[places] for name, values in columns.items()}


def _with_gaps(columns: Columns) -> dict[str, np.ndarray]:
    """Return the rows with every fifth number missing, each column in other rows: a request may lack any number."""
    return {
        name: np.where((np.arange(len(values)) + offset) % 5 == 0, np.nan, values)
        for offset, (name, values) in enumerate(columns.items())
    }


def _agree(actual: Columns, expected: Columns) -> bool:
    return all(np.allclose(actual[name], expected[name], rtol=1e-6, atol=1e-9, equal_nan=True) for name in expected)


def _check_row_wise(code: FeatureCode, graph: bytes, names: list[str], rows: Columns) -> None:
    whole = run_graph(graph, names, rows)
    num_rows = len(next(iter(rows.values())))
    cuts = [0, *(cut for cut in np.cumsum(PIECES) if cut < num_rows), num_rows]
    for start, stop in itertools.pairwise(cuts):
        part = run_graph(graph, names, {name: values[start:stop] for name, values in rows.items()})
        for name, values in part.items():
            if not _agree({name: values}, {name: whole[name][start:stop]}):
                raise UserCodeError(
                    f"data.features.transform {code.transform}: what {name!r} is in a row depends on other rows, or on "
                    "chance, which a served model does not know: compute it in data.features.fit, and read it from "
                    "the state"
                )


def run_graph(graph: bytes, names: list[str], columns: Columns) -> dict[str, np.ndarray]:
    """Return the features of some rows by their names, float64 (row,) each."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    input_names = {value.name for value in session.get_inputs()}
    feed = {f"c{number}": values for number, values in enumerate(columns.values()) if f"c{number}" in input_names}
    return dict(zip(names, session.run([f"f{number}" for number in range(len(names))], feed), strict=True))


def _number_or_missing(values: torch.Tensor) -> torch.Tensor:
    """Return float64 with NaN for infinite: the logarithm of a 0 that a caller sends must not reach the model."""
    import torch

    numbers = values.double()
    return torch.where(numbers.isinf(), torch.nan, numbers)


def _state_tensors(state: FittedState) -> dict[str, torch.Tensor]:
    import torch

    return {name: torch.from_numpy(np.array(array)) for name, array in state.arrays.items()}


def _exported(code: FeatureCode, state: FittedState, columns: Columns, num_features: int) -> bytes:
    import onnxruntime
    import torch

    from models.fitted_features.torch_graph import quiet_exporter, reason, strip_traces

    names = list(columns)
    few = [torch.from_numpy(np.resize(values, EXAMPLE_ROWS)) for values in columns.values()]
    rows = torch.export.Dim("batch")
    with quiet_exporter():
        try:
            program = torch.onnx.export(
                _module(code, state, names),
                tuple(few),
                input_names=[f"c{number}" for number in range(len(names))],
                output_names=[f"f{number}" for number in range(num_features)],
                dynamo=True,
                dynamic_shapes=(tuple({0: rows} for _ in names),),
                opset_version=OPSET,
                verbose=False,
            )
            assert program is not None
            model = program.model_proto
            strip_traces(model.graph)
            graph: bytes = model.SerializeToString(deterministic=True)
            onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise UserCodeError(
                f"data.features.transform {code.transform}: torch cannot turn it into a graph for any number of rows "
                f"({reason(error)}): write it with operations of torch alone, without branches on values"
            ) from error
    if any(value.type.tensor_type.shape.dim[0].HasField("dim_value") for value in model.graph.output):
        raise UserCodeError(
            f"data.features.transform {code.transform}: a feature has the same number for all rows: leave it out, or "
            "make it of a column"
        )
    return graph


def _module(code: FeatureCode, state: FittedState, names: list[str]) -> Any:
    import torch

    assert code.transform is not None
    function: Callable[..., Any] = references.resolve(code.transform, code.base)
    constants = _state_tensors(state)

    class Transform(torch.nn.Module):
        def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
            returned = function(dict(zip(names, columns, strict=True)), constants)
            return tuple(_number_or_missing(values) for values in returned.values())

    return Transform().eval()
