from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.export import bench, variants
from models.export.bench import optimise
from models.export.variants import VariantMeasurement
from models.inference.names import UNCHANGED_FILE
from models.inputs.categorical.record import CategoricalInput
from models.metrics.metrics import METRICS
from models.project_spec.serve import Serve
from tests.dense_models import dense_model
from tests.finished_jobs import FinishedJob

Optimise = Callable[..., tuple[list[VariantMeasurement], Path]]


@pytest.fixture
def optimised(finished_job: FinishedJob, tmp_path: Path) -> Optimise:
    """A function that exports dense layers, lets them be optimised by a `serve` block, and gives table and folder."""
    prepared = finished_job("mlp").prepared

    def run(model: onnx.ModelProto | None = None, **serve: object) -> tuple[list[VariantMeasurement], Path]:
        preparation = Preparation.load(prepared)
        onnx.save(model or dense_model(preparation, hidden=128), tmp_path / "model.onnx")
        preparation.save(tmp_path)
        return optimise(tmp_path, prepared, METRICS["log_loss"], Serve.model_validate(serve), 0), tmp_path

    return run


@pytest.fixture
def equally_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test must not depend on how long a call took."""
    monkeypatch.setattr(bench, "latencies", lambda files, example: dict.fromkeys(files, np.ones(21)))


def test_where_nothing_may_be_lost_all_are_measured_and_the_export_is_served(optimised: Optimise) -> None:
    table, folder = optimised(max_metric_loss=0.0)
    assert [each.name for each in table] == ["fp32", "int8_dynamic"]
    assert [each.name for each in table if each.served] == ["fp32"]
    for each in table:
        assert each.size_bytes
        assert each.latency_ms
        assert each.value is not None
    assert all("nothing may be lost (serve.max_metric_loss)" in each.refused for each in table[1:])
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "preparation.json"]


@pytest.mark.usefixtures("equally_fast")
def test_by_default_a_smaller_one_can_be_served(optimised: Optimise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "FEWEST_ROWS", 10)  # the made-up project has few rows
    table, _ = optimised()
    chosen = next(each for each in table if each.served)
    assert chosen.name != "fp32"
    assert chosen.size_bytes < table[0].size_bytes


def test_one_that_is_slower_than_the_export_is_not_served(optimised: Optimise, monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"fp32": np.full(21, 1.0), "int8_dynamic": np.full(21, 1.1)}
    monkeypatch.setattr(bench, "latencies", lambda files, example: took)
    table, _ = optimised(max_metric_loss=1.0, variants=["int8_dynamic"])
    assert table[1].refused == "takes 1.10 times as long as fp32"
    assert table[0].served


def test_a_median_that_is_surely_larger_is_told_from_one_that_may_be() -> None:
    random = np.random.default_rng(0)
    assert bench.at_least(random.normal(1.1, 0.05, 200)) > 1.08
    assert bench.at_least(np.array([0.9, 1.3, 1.1, 1.2])) == 0.9


@pytest.mark.usefixtures("equally_fast")
def test_the_smallest_that_loses_little_takes_the_exports_place(optimised: Optimise) -> None:
    table, folder = optimised(max_metric_loss=0.2)
    chosen = next(each for each in table if each.served)
    assert chosen.name == "int8_dynamic"
    assert (folder / "model.onnx").stat().st_size == chosen.size_bytes
    assert (folder / UNCHANGED_FILE).stat().st_size == table[0].size_bytes


@pytest.mark.usefixtures("equally_fast")
def test_a_limit_of_latency_that_nothing_keeps_leaves_the_export(optimised: Optimise) -> None:
    table, folder = optimised(max_metric_loss=1.0, max_latency_ms=1e-9, variants=["int8_dynamic"])
    assert [each.name for each in table if each.served] == ["fp32"]
    assert all("max_latency_ms" in each.refused for each in table)
    assert not (folder / UNCHANGED_FILE).exists()


def broken(model: onnx.ModelProto) -> onnx.ModelProto:
    raise ValueError("the tool has a fault\nand a long story")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (broken, "cannot be made: ValueError: the tool has a fault"),
        (lambda model: onnx.ModelProto(), "ONNX Runtime cannot run it"),
    ],
)
def test_what_cannot_be_made_is_in_the_table_with_its_reason(
    optimised: Optimise,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[onnx.ModelProto], onnx.ModelProto],
    reason: str,
) -> None:
    monkeypatch.setattr(bench, "dynamic_int8", make)
    table, _ = optimised(max_metric_loss=1.0)
    assert reason in table[1].refused
    assert "long story" not in table[1].refused
    assert [each.served for each in table] == [True, False]


def test_nothing_asked_for_and_a_net_without_weights_have_no_table(optimised: Optimise) -> None:
    assert optimised(variants=[])[0] == []
    tiny = dense_model(Preparation.load(optimised(variants=[])[1]), hidden=4)
    assert optimised(tiny)[0] == []


@pytest.mark.usefixtures("equally_fast")
def test_it_says_the_same_again_but_for_the_time_it_took(optimised: Optimise) -> None:
    first, second = (
        [
            each.model_copy(update={"latency_ms": None, "times_fp32": None})
            for each in optimised(max_metric_loss=0.05)[0]
        ]
        for _ in range(2)
    )
    assert first == second


def test_latencies_are_of_single_rows_in_turns(optimised: Optimise) -> None:
    _, folder = optimised(variants=[])
    names = Preparation.load(folder)
    row = {part.name: np.zeros(1) for part in names.numeric} | {
        part.name: np.array([""], object) for part in names.of(CategoricalInput)
    }
    took = bench.latencies({"a": folder / "model.onnx", "b": folder / "model.onnx"}, row)
    assert set(took) == {"a", "b"}
    assert min(times.min() for times in took.values()) > 0


def test_where_the_metric_is_undefined_nothing_is_compared_and_the_export_is_served(
    optimised: Optimise, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bench.targets
    monkeypatch.setattr(bench, "targets", lambda *given: np.zeros_like(whole(*given)))
    monkeypatch.setitem(METRICS, "log_loss", METRICS["roc_auc"])
    table, folder = optimised(max_metric_loss=1.0)
    assert [(each.name, each.served) for each in table] == [("fp32", True)]
    assert "roc_auc is undefined" in table[0].refused
    assert not (folder / UNCHANGED_FILE).exists()


@pytest.mark.parametrize(
    ("net", "kind", "task"),
    [("mlp", "table", "multiclass"), ("cnn", "image", "multiclass"), ("gru", "series", "regression"),
     ("decoder", "text", "language")],
)  # fmt: skip
def test_rows_of_every_kind_are_what_the_graph_takes(finished_job: FinishedJob, net: str, kind: str, task: str) -> None:
    prepared = finished_job(net, kind, task).prepared
    preparation = Preparation.load(prepared)
    rows = bench.BenchmarkRows.of(prepared, preparation)
    first = next(feeds(prepared, "validation", preparation))
    for name, values in rows.validation[0].items():
        assert (values.dtype, values.shape[1:]) == (first[name].dtype, first[name].shape[1:])
    count = sum(len(next(iter(feed.values()))) for feed in rows.validation)
    assert len(rows.target) == count == min(preparation.rows["validation"], bench.MOST_ROWS[kind])
