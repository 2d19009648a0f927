"""The core of a graph: the model of a finished job as ONNX nodes.

It is apart from `trained.py`, whose outputs decide a search, so that other graphs make no search run again.
"""

from __future__ import annotations

from collections.abc import Callable

from models.data.preparation import Preparation
from models.export.ensemble_graph import MemberPart, ensemble_part
from models.inputs.graph_builder import GraphBuilder
from models.nets.catalogue import row_of
from models.project_spec.references import resolve
from models.training.ensemble import members_of
from models.training.job import TrainingJob

Graph = Callable[[TrainingJob, Preparation], tuple[GraphBuilder, str]]
"""The trained model of a family as ONNX nodes, and the name of its output."""


def core_of(job: TrainingJob, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trained model as ONNX nodes, and the name of its output.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
        UserCodeError: The net cannot be exported.
    """
    if members := members_of(job):
        parts = [MemberPart(*core_of(member.job, preparation), member.name, member.weight) for member in members]
        return ensemble_part(parts, preparation.task)
    graph: Graph = resolve(row_of(job.model.net).graph, job.project)
    return graph(job, preparation)
