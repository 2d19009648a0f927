from models.data.preparation import Preparation
from models.export.core import core_of
from tests.finished_jobs import FinishedJob


def test_trees_become_a_core_of_trees(finished_job: FinishedJob) -> None:
    job = finished_job("trees")
    core, output = core_of(job, Preparation.load(job.prepared))
    assert [node.op_type for node in core.nodes][-1] == "TreeEnsemble"
    assert output == "core/trees"
