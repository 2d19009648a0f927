"""A bag of five: no model judges a row that it, or the row's group, has learnt from; weights count in every stage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.data.preparation import Preparation
from models.export.trained import held_out_examples, predictions_of, validation_outputs
from models.export.validation_scores import bag_scores, validation_value
from models.training.batches.examples import open_examples
from models.training.ensemble import bags_of, is_bagged, members_of
from models.training.job import RESULT_FILE, TrainingJob
from models.training.search_course import FOLDS, num_units
from tests.goal_jobs import answers, fitted, prepared_table, true_values

TREES = {"rounds": 60, "num_leaves": 7, "min_data_in_leaf": 5}
BAGS = {
    "members": [
        {"model.net": "trees", "weight": 0.6, **{f"model.{name}": value for name, value in TREES.items()}},
        {"model.net": "linear", "weight": 0.4},
    ],
    "folds": FOLDS,
}


def columns_of(num: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(num, 8))
    target = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return {**{f"x{column}": x[:, column] for column in range(8)}, "y": target + rng.normal(size=num)}


def grouped(num: int) -> dict[str, Any]:
    """Classes that only the group tells, by a number that no two groups share."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(num // 10), 10)
    label = rng.integers(0, 2, num // 10)[group]
    weight = rng.integers(1, 4, num) / 2
    return {"x": rng.normal(size=num // 10)[group], "group": group, "weight": weight, "y": np.where(label, "yes", "no")}


GROUPED: dict[str, Any] = {
    "data": {"split": {"by": "group", "column": "group"}, "weight": "weight"},
    "goal": {"metric": "log_loss"},
}


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A finished bag of trees and of a linear model, on rows in groups with weights."""
    place = tmp_path_factory.mktemp("bag")
    prepared = prepared_table(place / "table", grouped(600), **GROUPED)
    job = fitted(place / "unused", prepared, "linear").model_copy(update={"fold_by": "groups"})
    assert bag_scores(jobs_of(job, place))["costs"]["device_seconds"] > 0
    return ensemble_of(job, place)


def ensemble_of(job: TrainingJob, place: Path) -> TrainingJob:
    model = job.model.model_copy(update={"net": "ensemble", "arguments": BAGS})
    return job.model_copy(update={"folder": place / "job", "model": model})


def jobs_of(job: TrainingJob, place: Path) -> dict[str, list[dict[str, Any]]]:
    bags = bags_of(ensemble_of(job, place))
    return {str(bag[0].job.model.net): [member.job.as_json() for member in bag] for bag in bags}


def test_each_row_is_judged_by_models_of_other_groups(bag: TrainingJob):
    preparation = Preparation.load(bag.prepared)
    keys = np.concatenate([load_file(bag.tensors[split])["key"] for split in ("train", "validation")])
    assert num_units(bag.tensors) == len(np.unique(keys))
    left_out = []
    for member in bags_of(bag)[0]:
        train, judged = open_examples(member.job, preparation)
        assert not np.intersect1d(keys[np.asarray(train.keep)], keys[np.asarray(judged.keep)]).size
        left_out.append(np.asarray(judged.keep))
    assert sorted(np.concatenate(left_out)) == list(range(len(keys))), "every row once"
    examples = held_out_examples(bag, preparation)
    assert examples.units is not None
    np.testing.assert_array_equal(examples.units.of_rows, keys)
    first = load_file(bag.tensors["train"])
    np.testing.assert_array_equal(examples.target[: len(first["target"])], first["target"])
    assert examples.weight is not None
    np.testing.assert_array_equal(examples.weight[: len(first["target"])], first["weight"])


def test_what_only_the_group_tells_is_not_believed(bag: TrainingJob):
    """The models know most groups, so on their own rows they look good; other folds say what is true."""
    preparation = Preparation.load(bag.prepared)
    examples = held_out_examples(bag, preparation)
    num = len(load_file(bag.tensors["validation"])["target"])

    def hits(outputs: np.ndarray) -> float:
        return float(((predictions_of(outputs, preparation) > 0.5) == examples.target[-num:]).mean())

    served = hits(validation_outputs(bag, preparation, np.arange(num)))
    assert served > 0.8
    assert hits(examples.outputs[-num:]) < served - 0.15
    assert validation_value(bag.as_json()) > 0.6, "log loss of knowing nothing: .69"


def test_a_bag_that_was_killed_goes_on_with_the_fold_that_was_trained(bag: TrainingJob):

    def written() -> dict[str, int]:
        return {member.name: (member.job.folder / RESULT_FILE).stat().st_mtime_ns for member in members_of(bag)}

    killed = members_of(bag)[3]
    before, weights, scores = written(), killed.job.read_weights(), bag_scores(jobs_of(bag, bag.folder.parent))
    (killed.job.folder / RESULT_FILE).unlink()
    again, after = bag_scores(jobs_of(bag, bag.folder.parent)), written()
    assert [name for name in before if before[name] != after[name]] == [killed.name]
    assert killed.job.read_weights() == weights
    assert {**again, "costs": 0} == {**scores, "costs": 0}


def test_a_family_that_fails_on_a_fold_has_no_bag(bag: TrainingJob, tmp_path: Path):
    members = [{"model.net": "mlp", "weight": 1.0, "train.lr": 1e30, "train.epochs": 1}]
    model = bag.model.model_copy(update={"arguments": {"members": members, "folds": FOLDS}})
    (diverging,) = bags_of(bag.model_copy(update={"folder": tmp_path, "model": model}))
    jobs = {"mlp": [member.job.as_json() for member in diverging]}
    linear = {"linear": jobs_of(bag, bag.folder.parent)["linear"]}
    both = bag_scores(jobs | linear)
    assert [*both["scores"]] == ["linear"]
    assert "not finite" in both["failed"]["mlp"]
    assert "scores" not in bag_scores(jobs)


def test_one_graph_serves_the_bag(bag: TrainingJob, tmp_path: Path):
    target, predicted, preparation, record = answers(bag, tmp_path, "test")
    assert is_bagged(bag)
    assert record["parity"] < 1e-6
    assert record["knows_validation"], "variants cannot be measured on rows that the models know"
    tests = bag.model_copy(update={"tensors": {**bag.tensors, "validation": bag.tensors["test"]}})
    own = predictions_of(validation_outputs(tests, preparation, np.arange(len(target))), preparation)
    np.testing.assert_allclose(predicted, own, atol=1e-6)


@pytest.mark.wide
def test_a_bag_of_a_small_table_is_better_than_one_fit(tmp_path: Path):
    """300 rows that learn and 2,000 new ones: the mean of five nets has less absolute error than one net."""
    split = {"by": "random", "validation": 0.02, "test": 0.87}
    prepared = prepared_table(tmp_path / "table", columns_of(2300), data={"split": split})
    settings = {"epochs": 40, "batch": 32, "lr": 5e-3, "seed": 0}
    net = {"hidden": 32, "layers": 1, "numeric_embedding": "periodic"}
    alone = fitted(tmp_path / "alone", prepared, "mlp", net, **settings)
    member = {"model.net": "mlp", "weight": 1.0, **{f"model.{name}": value for name, value in net.items()}}
    bagged = fitted(tmp_path / "bag", prepared, "ensemble", {"members": [member], "folds": FOLDS}, **settings)
    assert absolute_error(bagged) < 0.98 * absolute_error(alone)


def absolute_error(job: TrainingJob) -> float:
    preparation, target = Preparation.load(job.prepared), true_values(job)
    tests = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
    outputs = validation_outputs(tests, preparation, np.arange(len(target)))
    return float(np.abs(predictions_of(outputs, preparation) - target).mean())
