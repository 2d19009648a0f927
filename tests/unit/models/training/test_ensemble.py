"""Ensembles: the choice of members, their mean, and their training one after the other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from models.errors import TrainingError
from models.files import read_json
from models.project_spec.blocks import Model, Train
from models.training.costs.summary import Costs
from models.training.ensemble import (
    LEAST_WEIGHT,
    averaged,
    combined,
    fit_members,
    members_of,
    output_of,
    selected,
    shrunk,
    weights_of,
)
from models.training.job import FIRST_FIT, RESULT_FILE, InitialWeights, TrainingJob, TrainingResult, begun
from models.training.search_space import settings_of, shares_of, shown, with_params

Outputs = NDArray[np.float64]
MEMBERS = [
    {"model.net": "trees", "model.rounds": 50, "train.epochs": 5},
    {"model.net": "mlp", "model.hidden": 8, "train.lr": 0.5},
]


def job_of(folder: Path, settings: dict[str, Any], **model: Any) -> TrainingJob:
    net, train = with_params(Model(**model), Train(seed=7), settings)
    return TrainingJob.model_validate(
        {
            "folder": folder,
            "prepared": folder,
            "tensors": {},
            "project": folder,
            "model": net,
            "train": train,
            "metric": "roc_auc",
            "direction": "maximize",
        }
    )


def squared(target: Outputs) -> Callable[[Outputs], float]:
    return lambda outputs: float(np.square(outputs - target).mean())


def test_initial_weights_are_for_the_members_of_their_net(tmp_path: Path) -> None:
    """They have its arguments too; trees have no use for them, nor has another net."""
    members = [*MEMBERS, {"model.net": "tabm"}]
    start = InitialWeights(weights=tmp_path, sha256="0", label="version 3")
    known = start.model_copy(update={"model": Model(net="mlp", arguments={"hidden": 4, "layers": 1})})
    job = begun(job_of(tmp_path, settings_of([0.2, 0.4, 0.4], members)), known)
    trees, mlp, tabm = (member.job for member in members_of(job))
    assert (trees.start, tabm.start, tabm.model.arguments) == (None, None, {})
    assert (mlp.start, mlp.model.arguments) == (known, {"hidden": 8, "layers": 1})
    of_file = [member.job.start for member in members_of(begun(job, start))]
    assert of_file == [None, start, start], "a net whose layers they do not have refuses them"


def test_models_whose_errors_differ_are_joined_by_how_good_they_are() -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(4000, 1))
    outputs = {"good": target + rng.normal(size=(4000, 1)), "bad": target + 1.5 * rng.normal(size=(4000, 1))}
    weights = selected(outputs, "regression", squared(target))
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["good"] == pytest.approx(1.5**2 / (1 + 1.5**2), abs=0.05), "inverse variances: the best weights"
    mean = combined([*outputs.values()], [*weights.values()], "regression")
    assert squared(target)(mean) < 0.8 * min(squared(target)(output) for output in outputs.values())


def test_a_model_that_helps_nobody_is_no_member() -> None:
    rng = np.random.default_rng(1)
    target = rng.normal(size=(2000, 1))
    best = target + 0.1 * rng.normal(size=(2000, 1))
    outputs = {"noise": 9 * rng.normal(size=(2000, 1)), "best": best, "twin": best.copy()}
    assert selected(outputs, "regression", squared(target)) == {"best": 1.0}, "of equals the first"


def test_a_small_part_of_an_ensemble_is_left_out() -> None:
    rng = np.random.default_rng(2)
    target = rng.normal(size=(4000, 1))
    outputs = {"good": target + rng.normal(size=(4000, 1)), "bad": target + 4.5 * rng.normal(size=(4000, 1))}
    assert 1 / 25 < 1 / (1 + 4.5**2) < LEAST_WEIGHT
    assert selected(outputs, "regression", squared(target)) == {"good": 1.0}


def test_weights_that_few_examples_chose_are_nearer_to_equal_ones_and_fall_back() -> None:
    drawn = shrunk({"gru": 0.84, "linear": 0.16}, "naive", 86)
    assert drawn == pytest.approx({"gru": 0.726, "linear": 0.199, "naive": 0.075}, abs=1e-3)
    assert shrunk({"gru": 1.0}, "naive", 10_000) == {"gru": 1.0}, "what changes nothing costs nothing"
    assert shrunk({"naive": 1.0}, "naive", 20) == {"naive": 1.0}


def test_no_ensemble_of_few_examples_is_without_bound_beside_its_naive_forecast() -> None:
    """Ten validation examples prefer by chance the worse of two forecasts of a random walk."""
    rng, losses = np.random.default_rng(0), {"chosen": 0.0, "drawn": 0.0}
    for _ in range(200):
        target = rng.normal(size=(210, 1))
        outputs = {"net": rng.normal(0, 0.6, size=(210, 1)), "naive": np.zeros((210, 1))}
        weights = selected({name: output[:10] for name, output in outputs.items()}, "regression", squared(target[:10]))
        for name, mean in (("chosen", weights), ("drawn", shrunk(weights, "naive", 10))):
            joined = combined([outputs[member][10:] for member in mean], list(mean.values()), "regression")
            losses[name] += squared(target[10:])(joined)
    assert losses["drawn"] < losses["chosen"]


def test_a_loss_that_is_not_defined_is_the_worst() -> None:
    outputs = {"broken": np.full((4, 1), np.nan), "whole": np.zeros((4, 1))}
    assert selected(outputs, "regression", lambda outputs: float(outputs.sum())) == {"whole": 1.0}
    assert selected(outputs, "regression", lambda _: float("nan")) == {"broken": 1.0}


@pytest.mark.parametrize(("task", "width"), [("binary", 1), ("multilabel", 3), ("multiclass", 4), ("regression", 2)])
def test_the_mean_of_a_model_with_itself_is_the_model(task: str, width: int) -> None:
    output = np.random.default_rng(3).normal(size=(50, width)) * 20
    same = combined([output, output], [0.3, 0.7], task)
    assert same.shape == output.shape
    np.testing.assert_allclose(averaged(same, task), averaged(output, task), rtol=1e-12, atol=0)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_probabilities_are_averaged_not_logits(task: str) -> None:
    rng = np.random.default_rng(4)
    width = 1 if task == "binary" else 3
    parts = [rng.normal(size=(200, width)) * 3 for _ in range(2)]

    def shares(output: Outputs) -> Outputs:
        made = averaged(output, task)
        return made if task == "multiclass" else made[..., 0].T

    mean = combined(parts, [0.25, 0.75], task)
    expected = 0.25 * shares(parts[0]) + 0.75 * shares(parts[1])
    np.testing.assert_allclose(shares(mean), expected, rtol=1e-12)
    truth = rng.integers(0, 2 if task == "binary" else 3, 200)
    losses = [log_loss(truth, shares(part)) for part in parts]
    assert log_loss(truth, shares(mean)) <= 0.25 * losses[0] + 0.75 * losses[1]


def test_certain_probabilities_stay_finite() -> None:
    far = np.array([[-2000.0], [2000.0]])
    assert np.isfinite(combined([far, far], [0.5, 0.5], "binary")).all()
    assert np.isfinite(combined([np.array([[-2000.0, 2000.0]])] * 2, [0.5, 0.5], "multiclass")).all()
    with np.errstate(all="raise", under="ignore"):
        output_of(averaged(far, "binary"), "binary")


def test_settings_name_the_members_and_become_their_jobs(tmp_path: Path) -> None:
    settings = settings_of([0.25, 0.75], MEMBERS)
    assert shares_of(settings) == {"trees": 0.25, "mlp": 0.75}
    assert shares_of({"model.net": "trees"}) == {}
    assert shown(settings) == {
        "model.net": "ensemble",
        "trees.weight": 0.25,
        "trees.model.rounds": 50,
        "trees.train.epochs": 5,
        "mlp.weight": 0.75,
        "mlp.model.hidden": 8,
        "mlp.train.lr": 0.5,
    }
    trees, mlp = members_of(job_of(tmp_path, settings, net="auto", arguments={"own": 1}))
    assert (trees.name, trees.weight, trees.job.folder) == ("trees", 0.25, tmp_path / "members" / "trees")
    assert trees.job.model == Model(net="trees", arguments={"own": 1, "rounds": 50})
    assert (trees.job.train.epochs, trees.job.train.seed) == (5, 7)
    assert (mlp.job.model.arguments, mlp.job.train.lr) == ({"own": 1, "hidden": 8}, 0.5)
    assert mlp.job.train.epochs == Train().epochs, "settings of one member are not those of another"
    assert members_of(job_of(tmp_path, MEMBERS[0])) == []


def test_two_members_of_a_family_have_names_and_folders_of_their_own(tmp_path: Path) -> None:
    settings = settings_of([0.2, 0.3, 0.5], [MEMBERS[0], MEMBERS[1], {**MEMBERS[0], "model.rounds": 7}])
    assert shares_of(settings) == {"trees": 0.2, "mlp": 0.3, "trees-2": 0.5}
    assert shown(settings)["trees-2.model.rounds"] == 7
    members = members_of(job_of(tmp_path, settings))
    assert [member.job.folder.name for member in members] == ["trees", "mlp", "trees-2"]
    assert [member.job.model.net for member in members] == ["trees", "mlp", "trees"]


def test_members_by_reference_have_short_names(tmp_path: Path) -> None:
    nets = ("./boosted.py:FAMILY", "sklearn.ensemble:ExtraTreesClassifier", "./b/boosted.py:FAMILY")
    settings = settings_of([0.2, 0.3, 0.5], [{"model.net": net, "model.depth": 4} for net in nets])
    members = members_of(job_of(tmp_path, settings))
    assert [member.name for member in members] == ["boosted", "ExtraTreesClassifier", "boosted-2"]
    assert [member.job.folder.name for member in members] == [member.name for member in members]
    assert [member.job.model.net for member in members] == [*nets]
    assert shown(settings)["boosted-2.model.net"] == nets[2]


def test_members_are_trained_in_turn_and_their_result_is_one(tmp_path: Path) -> None:
    job = job_of(tmp_path, settings_of([0.25, 0.75], MEMBERS))
    ran: list[str] = []

    def run(name: str, member: TrainingJob) -> TrainingResult:
        if ran == ["trees"] and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            raise TrainingError("ended in the middle")
        ran.append(name)
        assert member.folder == tmp_path / "members" / name
        weights = "trees.txt" if name == "trees" else "weights.safetensors"
        figures = {"weights": weights, "weights_sha256": name, "num_parameters": 3, "seconds": 2.0, "restarts": 1}
        costs = Costs(device_seconds=4.0)
        return TrainingResult(best_epoch=1, value=0.5, epochs=[{"val_loss": 1.0}], costs=costs, **figures)

    with pytest.raises(TrainingError, match="mlp of the ensemble: ended in the middle"):
        fit_members(job, run, lambda _: 0.9)
    assert not (tmp_path / RESULT_FILE).exists(), "nothing says that it is finished"
    result = fit_members(job, run, lambda trained: 0.9 if trained is job else 0.0)
    assert ran == ["trees", "trees", "mlp"]
    assert (result.value, result.num_parameters, result.seconds, result.restarts) == (0.9, 6, 4.0, 2)
    assert result.costs is not None
    assert result.costs.device_seconds == 8.0
    assert [*result.members] == ["trees", "mlp"]
    assert TrainingResult.model_validate(read_json(tmp_path / RESULT_FILE)) == result
    assert weights_of(job, result) == [
        tmp_path / "members/trees/trees.txt",
        tmp_path / "members/trees" / FIRST_FIT / "trees.txt",
        tmp_path / "members/mlp/weights.safetensors",
    ]
    changed = run("mlp", members_of(job)[1].job).model_copy(update={"weights_sha256": "other"})
    other = fit_members(job, lambda name, member: run(name, member) if name == "trees" else changed, lambda _: 0.9)
    assert other.weights_sha256 != result.weights_sha256
