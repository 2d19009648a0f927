"""An estimator's part of the graph gives the outputs that validation saw, and its export answers as its library."""

import pytest
import torch

from models.data.preparation import Preparation
from models.export.core import core_of
from models.export.export import export
from models.export.trained import validation_outputs
from models.inputs.graph_builder import CORE_PREFIX
from models.project_spec.blocks import Model
from models.training.batches.examples import open_examples
from models.training.rank import run_job
from tests.extras import needs_extras
from tests.finished_jobs import METADATA, run_stretch
from tests.wide import wide

needs_extras("catboost", "onnxmltools", "skl2onnx", "xgboost")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # skl2onnx hands numpy's truths to protobuf


@pytest.fixture
def fitted_job(finished_job, tmp_path):
    """A function that gives the finished job of an estimator."""

    def make(net, kind, task, **arguments):
        model = Model(net=net, arguments=arguments)
        job = finished_job("linear", kind, task).model_copy(update={"folder": tmp_path / "job", "model": model})
        job.folder.mkdir()
        run_job(job)
        return job

    return make


@pytest.mark.parametrize(
    ("net", "kind", "task", "arguments"),
    [
        ("xgboost:XGBClassifier", "table", "binary", {"rounds": 5}),
        wide("xgboost:XGBRegressor", "series", "quantile", {"rounds": 5}),
        ("catboost:CatBoostClassifier", "table", "multiclass", {"rounds": 5}),
        wide("catboost:CatBoostRegressor", "series", "horizons", {"rounds": 5}),
        ("sklearn.ensemble:ExtraTreesClassifier", "table", "multiclass", {"n_estimators": 5}),
        wide("sklearn.ensemble:HistGradientBoostingRegressor", "series", "regression", {"max_iter": 5}),
        ("sklearn.linear_model:LogisticRegression", "table", "binary", {}),
    ],
)
def test_the_part_gives_the_outputs_and_the_export_its_answers(fitted_job, tmp_path, net, kind, task, arguments):
    job = fitted_job(net, kind, task, **arguments)
    preparation = Preparation.load(job.prepared)
    validation = open_examples(job, preparation)[1]
    positions = torch.arange(len(validation))
    part, output = core_of(job, preparation)
    inputs = {CORE_PREFIX + name: value.numpy() for name, value in validation.gather(positions).items()}
    used = {name for node in part.nodes for name in node.input}
    (outputs,) = run_stretch(part, {name: value for name, value in inputs.items() if name in used}, [output])
    assert outputs == pytest.approx(validation_outputs(job, preparation, positions.numpy()), abs=1e-5)
    (tmp_path / "export").mkdir()
    answer = export(job.as_json(), str(tmp_path / "export"), METADATA)
    assert answer["parity"] < 1e-4
