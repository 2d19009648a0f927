"""What torch's exporter of ONNX graphs needs and leaves: silence, and graphs without traces of this machine."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

import onnx


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence the exporter's warnings of torch's own deprecations and of a missing torchvision: nothing to act on."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def reason(error: BaseException) -> str:
    """Return the first line of the first cause: the exporter's own message tells of its steps alone."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def strip_traces(graph: onnx.GraphProto) -> None:
    """Remove stack traces (they hold this machine's paths) and stale shapes from a graph and its subgraphs."""
    del graph.metadata_props[:], graph.value_info[:]
    graph.doc_string = ""
    for named in (*graph.input, *graph.output, *graph.initializer):
        named.doc_string = ""
        del named.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for subgraph in (*inner, *attribute.graphs):
                strip_traces(subgraph)
