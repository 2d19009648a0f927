"""Rankings from the raw rows to the exported scores: trees and linear models learn the order within a group."""

from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data import feeds
from models.data.encode import write_tensors
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.errors import DataError, TrainingError
from models.export.export import export
from models.export.validation_scores import BLOCKS, validation_scores
from models.metrics.metrics import METRICS
from models.metrics.ranking import groups_of, has_order
from models.project_spec.blocks import Model, Spec, Train
from models.training.batches.examples import open_examples
from models.training.batches.group_order import MOST_ROWS, group_order
from models.training.boosters import booster_texts
from models.training.job import TREES_FILE, EpochReport, TrainingJob
from models.training.rank import run_job
from tests.finished_jobs import METADATA

MakeRanking = Callable[..., TrainingJob]
PARAMETERS = {"rounds": 24, "min_data_in_leaf": 5}


def table(num: int = 80, size: int = 8) -> pa.Table:
    """Groups whose level, which differs much, is no part of the order; the rows of a group lie apart."""
    rng = np.random.default_rng(0)
    level, x = rng.normal(0, 10, num), rng.normal(size=(size, num))
    signal = x + rng.normal(0, 0.3, x.shape)
    grade = (signal > np.quantile(signal, 0.5, axis=0)) * 1 + (signal > np.quantile(signal, 0.8, axis=0)) * 2
    grade[:, ::4] = 0  # no order in every fourth group
    query = np.broadcast_to(np.arange(num), x.shape)
    columns = {"query": query, "x": x + level, "level": np.broadcast_to(level, x.shape), "grade": grade}
    return pa.table({name: values.ravel() for name, values in columns.items()})


@pytest.fixture
def make_ranking(tmp_path: Path) -> MakeRanking:
    def make(
        net: str, folder: str = "job", sample: float = 1.0, refit: bool = False, **arguments: object
    ) -> TrainingJob:
        prepared = tmp_path / "prepared"
        if not prepared.exists():
            pq.write_table(table(), tmp_path / "raw.parquet")
            data = {"source": "x.csv", "target": "grade", "task": "ranking"}
            data |= {"split": {"by": "group", "column": "query", "validation": 0.3}}
            prepare(tmp_path / "raw.parquet", Spec.model_validate({"name": "t", "data": data}), tmp_path, prepared)
            (tmp_path / "tensors").mkdir()
            write_tensors(prepared, tmp_path / "tensors")
        return TrainingJob(
            folder=tmp_path / folder,
            prepared=prepared,
            tensors={side: tmp_path / "tensors" / f"{side}.safetensors" for side in ("train", "validation")},
            project=tmp_path,
            model=Model(net=net, arguments=arguments),
            train=Train(epochs=8, batch=32, lr=0.01, seed=1, refit=refit),
            metric="ndcg",
            direction="maximize",
            sample=sample,
            checkpoint_share=1.0,
        )

    return make


def test_trees_are_those_of_lambdarank_with_the_groups_sizes(make_ranking):
    job = make_ranking("trees", **PARAMETERS)
    result = run_job(job)
    preparation = Preparation.load(job.prepared)
    train, validation = open_examples(job, preparation)
    values = train.values()
    order = np.argsort(values[:, 1], kind="stable")
    sizes = np.unique(values[:, 1], return_counts=True)[1]
    inputs, validated = (each.tensors["numeric"].numpy() for each in (train, validation))
    settings = {"objective": "lambdarank", "min_data_in_leaf": 5, "seed": 1, "num_threads": 1, "verbosity": -1}
    settings |= {"deterministic": True, "force_row_wise": True}
    peer = lightgbm.train(settings, lightgbm.Dataset(inputs[order], values[order, 0], group=sizes), 24)
    text = (job.folder / TREES_FILE).read_text()
    ours = lightgbm.Booster(model_str=booster_texts(text)[0])
    rounds = ours.current_iteration()
    np.testing.assert_allclose(ours.predict(validated), peer.predict(validated, num_iteration=rounds), atol=1e-9)
    assert result.value == pytest.approx(METRICS["ndcg"].value(validation.values(), ours.predict(validated)))
    assert result.value > 0.7
    assert result.epochs[-1]["train_loss"] < result.epochs[0]["train_loss"] < 1
    trained = METRICS["ndcg"].value(values, peer.predict(inputs))
    assert result.epochs[-1]["train_loss"] == pytest.approx(1 - trained)


def test_a_refit_learns_from_the_groups_of_both_sides(make_ranking):
    job = make_ranking("trees", refit=True, **PARAMETERS)
    result = run_job(job)
    assert result.value == run_job(make_ranking("trees", "first", **PARAMETERS)).value
    sides = open_examples(job, Preparation.load(job.prepared))
    values, inputs = (
        np.concatenate(parts)
        for parts in zip(*((side.values(), side.tensors["numeric"]) for side in sides), strict=True)
    )
    order, sizes = np.argsort(values[:, 1], kind="stable"), np.unique(values[:, 1], return_counts=True)[1]
    settings = {**result.environment["parameters"], "min_data_in_leaf": 5}
    peer = lightgbm.train(settings, lightgbm.Dataset(inputs[order], values[order, 0], group=sizes), 24)
    ours = lightgbm.Booster(model_str=(job.folder / TREES_FILE).read_text())
    rounds = ours.current_iteration()
    assert rounds == result.environment["refit"]["rounds"] > 0
    np.testing.assert_allclose(ours.predict(inputs), peer.predict(inputs, num_iteration=rounds), atol=1e-9)


def test_killed_and_run_again_gives_the_same_trees(make_ranking):
    whole, killed = (make_ranking("trees", folder, **PARAMETERS) for folder in ("whole", "killed"))

    def report(now: EpochReport) -> bool:
        if now.epoch == 5:
            raise KeyboardInterrupt
        return True

    expected = run_job(whole)
    with pytest.raises(KeyboardInterrupt):
        run_job(killed, report)
    assert run_job(killed).weights_sha256 == expected.weights_sha256


@pytest.mark.parametrize(("net", "least"), [("linear", 0.94), ("mlp", 0.6)])
def test_linear_models_and_nets_rank_too(make_ranking, net, least):
    assert run_job(make_ranking(net)).value > least


def test_the_exported_graph_gives_the_same_scores(make_ranking, tmp_path):
    job = make_ranking("trees", **PARAMETERS)
    run_job(job)
    (tmp_path / "out").mkdir()
    answer = export(job.as_json(), str(tmp_path / "out"), METADATA)
    assert answer["max_difference"] < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    (feed,) = feeds.feeds(job.prepared, "test")
    (scores,) = session.run(["prediction"], feed)
    target = feeds.targets(job.prepared, "test")
    assert METRICS["ndcg"].value(target, scores) > METRICS["ndcg"].value(target, np.zeros(len(target))) + 0.1
    found = validation_scores({"trees": job.as_json()})
    assert len(found["scores"]["trees"]["without"]) == BLOCKS
    assert found["constant"] < found["scores"]["trees"]["value"]


def test_a_sample_holds_whole_groups_with_and_without_an_order(make_ranking):
    job = make_ranking("trees", sample=0.5)
    preparation = Preparation.load(job.prepared)
    some, every = (open_examples(each, preparation)[0].values() for each in (job, make_ranking("trees")))
    assert (np.bincount(groups_of(some)) == 8).all()
    assert has_order(some).sum() == pytest.approx(has_order(every).sum() / 2, abs=8)
    assert len(some) == pytest.approx(len(every) / 2, abs=16)


def test_more_folds_than_groups_with_an_order_are_refused(make_ranking):
    job = make_ranking("trees").model_copy(update={"fold": (0, 70), "fold_by": "groups"})
    with pytest.raises(TrainingError, match=r"search\.folds: got 70, but \d+ groups hold different grades"):
        open_examples(job, Preparation.load(job.prepared))


def test_a_group_that_lightgbm_does_not_take_is_refused():
    values = np.zeros((MOST_ROWS + 1, 2))
    with pytest.raises(DataError, match=r"'query': a group has 10,001 rows, expected 10,000 at most for trees"):
        group_order(values, "query")
