"""An estimator by reference as ONNX nodes, from the prepared inputs to the raw outputs."""

from __future__ import annotations

from collections.abc import Sequence

from models.data.preparation import Preparation
from models.estimators.joined import join
from models.estimators.stored import OutputModel, unpack
from models.export.feature_nodes import corrected, feature_nodes
from models.inputs.graph_builder import GraphBuilder
from models.training.by_rounds.estimators import FittedEstimator
from models.training.job import TrainingJob


def estimator_parts(jobs: Sequence[TrainingJob], preparation: Preparation) -> list[tuple[GraphBuilder, str]]:
    """Return for each of the finished jobs what `estimator_part` returns."""
    return [estimator_part(job, preparation) for job in jobs]


def estimator_part(job: TrainingJob, preparation: Preparation) -> tuple[GraphBuilder, str]:
    """Return the nodes of a finished job's estimator, and the name of their output (batch, num_outputs).

    Raises:
        StoreError: The weights cannot be read.
        UsageError: The library is missing.
        TrainingError: The library's converter refuses the model.
    """
    fitted, stored = FittedEstimator.of(job.model.net, job.project, preparation), unpack(job.read_weights())
    builder, features, correction = feature_nodes(preparation)

    def graph_of(model: OutputModel) -> bytes:
        return fitted.functions.onnx(model.model, stored.plan.width, len(model.classes))

    raw = join(builder, features, stored, graph_of, fitted.row.output, fitted.link, fitted.num_classes)
    return builder, corrected(builder, raw, correction, "estimator")
