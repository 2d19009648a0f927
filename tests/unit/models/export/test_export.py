import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.errors import StoreError
from models.export.export import export
from models.export.signature import feed_of
from models.inference.portable import MODEL_FILE, _load_pyfunc
from models.inference.predict import predict
from models.training.job import TrainingJob
from tests.finished_jobs import METADATA, ExportedJob, FinishedJob
from tests.wide import wide

# Golden specs (tests/rules) export linear and cnn.
# Of series, one step ahead is the first of several horizons, and a horizon the middle one of several quantiles.
READY: list[Any] = [
    ("mlp", "table", "binary", {"hidden": 8}),
    wide(("tabm", "table", "multiclass", {"hidden": 8})),
    wide(("transformer", "table", "multiclass", {"width": 8, "layers": 1})),
    wide(("linear", "table", "multiclass", {})),
    ("trees", "table", "multiclass", {}),
    ("trees", "table", "regression", {}),
    wide(("cnn", "image", "multiclass", {"width": 4, "hidden": 8})),
    ("resnet", "image", "multiclass", {"width": 4}),
    pytest.param(("gru", "series", "regression", {"hidden": 8}), marks=pytest.mark.soak),
    pytest.param(("trees", "series", "regression", {}), marks=pytest.mark.soak),
    pytest.param(("linear", "series", "horizons", {}), marks=pytest.mark.soak),
    wide(("gru", "series", "horizons", {"hidden": 8})),
    wide(("trees", "series", "horizons", {})),
    wide(("linear", "series", "quantile", {})),
    wide(("gru", "series", "quantile", {"hidden": 8})),
    wide(("trees", "series", "quantile", {})),
    ("lstm", "series", "regression", {"hidden": 8}),
    wide(("decoder", "text", "language", {"width": 16, "layers": 2, "heads": 2})),
    ("lstm", "text", "language", {"hidden": 8}),
]


def exported(job: TrainingJob, out: Path) -> dict[str, Any]:
    return export(job.as_json(), str(out), METADATA)


@pytest.fixture(scope="module", params=READY, ids=lambda ready: "-".join(ready[:3]))
def made(request: pytest.FixtureRequest, exported_job: ExportedJob) -> tuple[TrainingJob, dict[str, Any]]:
    net, kind, task, arguments = request.param
    return exported_job(net, kind, task, **arguments)


def test_every_ready_net_is_in_parity_with_its_graph(made: tuple[TrainingJob, dict[str, Any]]) -> None:
    _, answer = made
    assert answer["parity"] == answer["max_difference"] < 1e-5 < answer["tolerance"]
    assert answer["num_examples"] > 30
    assert answer["label_flips"] == 0


def test_the_file_is_what_the_answer_says(made: tuple[TrainingJob, dict[str, Any]]) -> None:
    job, answer = made
    content = Path(answer["path"]).read_bytes()
    assert answer["sha256"] == hashlib.sha256(content).hexdigest()
    assert answer["size_bytes"] == len(content)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert METADATA.items() <= {entry.key: entry.value for entry in model.metadata_props}.items()
    stored = Preparation.load(Path(answer["path"]).parent)
    assert stored.model_copy(update={"quantile_shifts": []}) == Preparation.load(job.prepared)
    assert bool(stored.quantile_shifts) == (stored.task == "quantile")
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_one_row_and_many_give_the_same(made: tuple[TrainingJob, dict[str, Any]]) -> None:
    job, answer = made
    preparation = Preparation.load(job.prepared)
    path = Path(answer["path"])
    whole = predict(path, feeds(job.prepared, "test", preparation), preparation)
    single = predict(path, feeds(job.prepared, "test", preparation, batch=1), preparation)
    assert len(whole) > 40
    np.testing.assert_allclose(single, whole, rtol=1e-4, atol=1e-6)


def test_the_example_can_be_sent_as_it_is(made: tuple[TrainingJob, dict[str, Any]]) -> None:
    _, answer = made
    feed = feed_of(answer["input_example"], answer["inputs"])
    assert len(_load_pyfunc(answer["path"]).predict(feed)) == 3


def test_the_same_weights_give_the_same_bytes(finished_job: FinishedJob, tmp_path: Path) -> None:
    job = finished_job("trees")
    assert exported(job, tmp_path / "one")["sha256"] == exported(job, tmp_path / "two")["sha256"]


def test_labels_are_the_classes_and_unseen_values_are_predicted(exported_job: ExportedJob) -> None:
    job, answer = exported_job("trees", task="multiclass")
    unseen = {name: np.array(["nowhere", ""], object) for name in ("city", "month", "is late")}
    feed = {"größe (m)": np.array([np.nan, 2.0]), "n/1": np.array([np.nan, 1e300]), **unseen}
    session = onnxruntime.InferenceSession(answer["path"], providers=["CPUExecutionProvider"])
    label, probabilities = session.run(["label", "probabilities"], feed)
    classes = Preparation.load(job.prepared).target.classes or []
    assert label.tolist() == [classes[index] for index in probabilities.argmax(axis=1)]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("net", ["mlp", "trees"])
def test_a_job_without_its_weights_is_named(finished_job: FinishedJob, tmp_path: Path, net: str) -> None:
    job = finished_job(net).model_copy(update={"folder": tmp_path / "gone"})
    with pytest.raises(StoreError, match="gone"):
        exported(job, tmp_path / "out")
    assert not (tmp_path / "out" / MODEL_FILE).exists()
