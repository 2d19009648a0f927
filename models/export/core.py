"""The core of a graph: the model of a finished job as ONNX nodes.

It is apart from `trained.py`, whose outputs decide a search, so that other graphs make no search run again.
"""

from __future__ import annotations

from models.data.preparation import Preparation
from models.export.ensemble_graph import MemberPart, ensemble_part
from models.export.trained import net_of, trees_text
from models.export.trees import trees_part
from models.inputs.graph_builder import GraphBuilder
from models.nets.catalogue import is_trees
from models.training.ensemble import members_of
from models.training.job import TrainingJob


def core_of(job: TrainingJob, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the trained model as ONNX nodes, and the name of its output.

    Raises:
        StoreError: The job's folder lacks the weights, or holds another net's.
        UserCodeError: The net cannot be exported.
    """
    if members := members_of(job):
        parts = [MemberPart(*core_of(member.job, preparation), member.name, member.weight) for member in members]
        return ensemble_part(parts, preparation.task)
    if is_trees(job.model.net):
        return trees_part(trees_text(job.folder), preparation)
    from models.export.net_graph import net_part

    return net_part(net_of(job, preparation), preparation, job.model.net)
