"""The core of a graph: the model of a finished job as ONNX nodes.

It is apart from `trained.py`, whose outputs decide a search, so that other graphs make no search run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from models.data.preparation import Preparation
from models.export.ensemble_graph import MemberPart, ensemble_part
from models.inputs.graph_builder import GraphBuilder
from models.nets.catalogue import row_of
from models.project_spec.references import resolve
from models.training.ensemble import bags_of
from models.training.job import TrainingJob

Graphs = Callable[[Sequence[TrainingJob], Preparation], list[tuple[GraphBuilder, str]]]
"""The trained models of jobs of equal settings as ONNX nodes, each with the name of its output."""


def core_of(job: TrainingJob, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trained model as ONNX nodes, and the name of its output.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
        UserCodeError: The net cannot be exported.
    """
    bags = bags_of(job)
    if not bags:
        return _graphs([job], preparation)[0]
    parts = [
        MemberPart(*part, member.name, member.weight)
        for bag in bags
        for member, part in zip(bag, _graphs([member.job for member in bag], preparation), strict=True)
    ]
    return ensemble_part(parts, preparation.task)


def _graphs(jobs: Sequence[TrainingJob], preparation: Preparation) -> list[tuple[GraphBuilder, str]]:
    graphs: Graphs = resolve(row_of(jobs[0].model.net).graphs, jobs[0].project)
    return graphs(jobs, preparation)
