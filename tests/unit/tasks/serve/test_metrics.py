"""What Prometheus reads: counts by version and status, bounded labels, what is now."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.parser import text_string_to_metric_families

from models.data.target_encoding import OutputColumn
from models.inference.loaded_model import LoadedModel, Prediction
from models.serving.releases import Canary, Release
from tasks.serve.metric_files import SHARED
from tasks.serve.metrics import MOST_CLASSES, MOST_KEPT, MOST_VERSIONS, OTHER, Metrics
from tasks.serve.request_context import RequestContext
from tests.served_models import preparation_of, write_served

Samples = dict[tuple[str, ...], float]


def read(metrics: Metrics, name: str, **loaded: Release | None) -> Samples:
    """Samples of a metric by the values of their labels."""
    held = {
        key: SimpleNamespace(release=release, is_ready=release is not None) for key, release in (loaded or {}).items()
    }
    metrics.look(SimpleNamespace(waiting=3), held)  # type: ignore[arg-type]
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == f"loopline_serve_{name}"]
    return {tuple(sample.labels[key] for key in sorted(sample.labels, key=_order)): sample.value for sample in samples}


def _order(label: str) -> int:
    """Model and version first."""
    return {"model": 0, "version": 1}.get(label, 2)


def pass_by(
    metrics: Metrics, model: str = "tiny", version: str = "1", status: int = 200, seconds: float = 0.003
) -> None:
    metrics.passed(RequestContext(model=model, version=version, status=status), seconds)


@pytest.fixture
def served(tmp_path: Path) -> LoadedModel:
    write_served(tmp_path, "binary")
    return LoadedModel("tiny", "1", tmp_path)


def test_requests_are_counted_by_version_and_status() -> None:
    metrics = Metrics()
    for _ in range(MOST_KEPT + 1):
        pass_by(metrics)
    pass_by(metrics, version="2", status=503)
    pass_by(metrics, model="", version="", status=401)
    assert read(metrics, "requests_total") == {
        ("tiny", "1", "200"): MOST_KEPT + 1, ("tiny", "2", "503"): 1, ("", "", "401"): 1,
    }  # fmt: skip
    assert read(metrics, "request_seconds_count") == {("tiny", "1"): MOST_KEPT + 1, ("tiny", "2"): 1}
    buckets = read(metrics, "request_seconds_bucket")
    assert (buckets["tiny", "2", "0.002"], buckets["tiny", "2", "0.005"]) == (0, 1)


def test_versions_past_the_first_are_other() -> None:
    metrics = Metrics()
    for version in range(MOST_VERSIONS + 7):
        pass_by(metrics, version=str(version))
    found = read(metrics, "requests_total")
    assert len(found) == MOST_VERSIONS + 1
    assert found["tiny", OTHER, "200"] == 7


def test_predictions_are_counted_by_class_and_probability(served: LoadedModel) -> None:
    metrics = Metrics()
    metrics.answered(served, served.answer({"x": np.array([1.0, -1.0, 2.0]), "c": np.array(["u"] * 3, object)}))
    assert read(metrics, "rows_total") == {("tiny", "1"): 3}
    assert read(metrics, "predictions_total") == {("tiny", "1", "yes"): 2, ("tiny", "1", "no"): 1}
    buckets = read(metrics, "probability_bucket")
    assert (buckets["tiny", "1", "0.5"], buckets["tiny", "1", "1.0"]) == (1, 3)


def test_of_many_rows_all_are_counted_and_none_is_kept(served: LoadedModel) -> None:
    metrics, many = Metrics(), 1000
    metrics.answered(served, served.answer({"x": np.ones(many), "c": np.array(["u"] * many, object)}))
    pass_by(metrics)
    assert not metrics._version_counts
    assert read(metrics, "rows_total") == {("tiny", "1"): many}
    assert sum(read(metrics, "predictions_total").values()) == many
    assert read(metrics, "probability_count") == {("tiny", "1"): many}


def test_classes_past_the_first_are_other(served: LoadedModel) -> None:
    metrics = Metrics()
    for number in range(MOST_CLASSES + 4):
        outputs = {"label": np.array([f"c{number}"], object), "probabilities": np.array([[0.4, 0.6]])}
        metrics.answered(served, Prediction("tiny", "1", outputs))
    found = read(metrics, "predictions_total")
    assert len(found) == MOST_CLASSES + 1
    assert found["tiny", "1", OTHER] == 4


def test_predictions_of_a_regression_are_in_deviations_of_the_target(tmp_path: Path) -> None:
    write_served(tmp_path, "regression")
    served, metrics = LoadedModel("tiny", "1", tmp_path), Metrics()
    target = served.preparation.target.model_copy(update={"shift": 100.0, "scale": 10.0})
    served.preparation = served.preparation.model_copy(update={"target": target})
    metrics.answered(served, Prediction("tiny", "1", {"prediction": np.array([100.0, 125.0])}))
    buckets = read(metrics, "standard_prediction_bucket")
    assert [buckets["tiny", "1", edge] for edge in ("-0.5", "0.0", "2.0", "3.0")] == [0, 1, 1, 2]


def test_each_of_several_outputs_is_in_deviations_of_its_own(tmp_path: Path) -> None:
    outputs = [
        OutputColumn(name=name, column=name, shift=shift, scale=10.0) for name, shift in (("a", 0.0), ("b", 50.0))
    ]
    several = preparation_of("regression")
    several = several.model_copy(update={"target": several.target.model_copy(update={"outputs": outputs})})
    write_served(tmp_path, "regression", several)
    served, metrics = LoadedModel("tiny", "1", tmp_path), Metrics()
    rows = np.array([[0.0, 50.0], [12.0, 62.0], [-12.0, 38.0]])
    metrics.answered(served, Prediction("tiny", "1", {"prediction": rows}))
    metrics.answered(served, Prediction("tiny", "1", {"prediction": rows[:1]}))
    buckets = read(metrics, "standard_prediction_bucket")
    assert [buckets["tiny", "1", edge] for edge in ("-1.5", "-1.0", "0.0", "1.0", "1.5")] == [0, 2, 6, 6, 8]


def test_each_label_of_a_multilabel_model_is_counted_with_its_probability(tmp_path: Path) -> None:
    outputs = [OutputColumn(name=name, column=name) for name in ("red", "round")]
    labels = preparation_of("multilabel")
    labels = labels.model_copy(update={"target": labels.target.model_copy(update={"outputs": outputs})})
    write_served(tmp_path, "multilabel", labels)
    served, metrics = LoadedModel("tiny", "1", tmp_path), Metrics()
    metrics.answered(served, served.answer({"x": np.array([1.0, -1.0, 2.0]), "c": np.array(["u"] * 3, object)}))
    assert read(metrics, "rows_total") == {("tiny", "1"): 3}
    assert read(metrics, "predictions_total") == {("tiny", "1", "red"): 2, ("tiny", "1", "round"): 2}
    buckets = read(metrics, "probability_bucket")
    assert (buckets["tiny", "1", "0.5"], buckets["tiny", "1", "1.0"]) == (2, 6)
    metrics.answered(served, served.answer({"x": np.array([-1.0]), "c": np.array(["u"], object)}))
    assert read(metrics, "probability_count") == {("tiny", "1"): 8}, "a row without a label has probabilities"
    assert read(metrics, "standard_prediction_count") == {}


def test_what_is_now_is_told() -> None:
    metrics = Metrics()
    first = Release(generation=1, stable="1")
    second = Release(generation=2, stable="2", previous="1", canary=Canary(version="3", share=0.1), refused={"4": "no"})
    assert read(metrics, "ready", tiny=None) == {("tiny",): 0}
    assert read(metrics, "version", tiny=first) == {("tiny", "1", "stable"): 1}
    assert read(metrics, "swaps_total", tiny=first) == {("tiny",): 0}
    assert read(metrics, "swaps_total", tiny=second) == {("tiny",): 1}
    assert read(metrics, "refused_versions", tiny=second) == {("tiny",): 1}
    assert read(metrics, "queue_waiting", tiny=second) == {(): 3}
    assert read(metrics, "version", tiny=second) == {
        ("tiny", "1", "stable"): 0, ("tiny", "2", "stable"): 1,
        ("tiny", "1", "previous"): 1, ("tiny", "3", "canary"): 1,
    }  # fmt: skip


def test_rows_that_were_not_written_down_are_counted() -> None:
    metrics = Metrics()
    metrics.unlogged("tiny", 5)
    assert read(metrics, "unlogged_rows_total") == {("tiny",): 5}


def test_a_file_that_a_worker_has_just_made_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    monkeypatch.setenv(SHARED, str(tmp_path))
    written = MmapedDict(str(tmp_path / "counter_1.db"))
    written.write_value(mmap_key("rows_total", "rows_total", [], [], "Rows"), 3.0, 0.0)
    written.close()
    (tmp_path / "counter_2.db").touch()
    (tmp_path / "counter_3.db").symlink_to(tmp_path / "gone")
    assert b"rows_total 3.0" in metrics.text()
