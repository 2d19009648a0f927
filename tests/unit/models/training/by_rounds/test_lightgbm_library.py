"""Our calls of LightGBM's C API give the bytes and the bits of its Python package."""

import subprocess
import sys

import lightgbm
import numpy as np
import pytest

from models.errors import TrainingError
from models.training.by_rounds.lightgbm_library import Booster, TrainSet

QUIET = {"verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True, "min_data_in_leaf": 5}
RNG = np.random.default_rng(0)
NUMBERS, CLASSES = RNG.normal(size=300), RNG.integers(0, 3, 300)
FEATURES = np.column_stack([np.where(RNG.random(300) < 0.1, np.nan, NUMBERS), RNG.normal(size=300), CLASSES])
FEATURES = FEATURES.astype(np.float32)
WEIGHTS = RNG.uniform(0.5, 2, 300)
CASES = {
    "two classes": ({"objective": "binary", "metric": "binary_logloss"}, CLASSES > 0, {"weight": WEIGHTS}),
    "weights of one": ({"objective": "regression_l1", "metric": "l1"}, NUMBERS, {"weight": np.ones(300)}),
    "classes": ({"objective": "multiclass", "metric": "multi_logloss", "num_class": 3}, CLASSES, {}),
    "groups": ({"objective": "lambdarank", "metric": "none"}, CLASSES, {"group": np.full(30, 10)}),
    "limits": (
        {
            "objective": "regression",
            "metric": "l2",
            "monotone_constraints": [1, 0, 0],
            "interaction_constraints": [[0, 2]],
        },
        NUMBERS,
        {},
    ),
    "drawn rows": ({"objective": "quantile", "alpha": 0.9, "bagging_fraction": 0.5, "bagging_freq": 1}, NUMBERS, {}),
    "own loss": ({"metric": "l2"}, NUMBERS, {"weight": WEIGHTS}),
}


@pytest.mark.parametrize("case", CASES)
def test_texts_and_outputs_are_those_of_the_package(case):
    settings, label, fields = CASES[case]
    parameters = {**QUIET, **settings, "feature_fraction_bynode": 0.5}
    is_own = "objective" not in settings
    theirs = lightgbm.Dataset(
        FEATURES, label, categorical_feature=[2], params=parameters, free_raw_data=False, **fields
    )
    ours = TrainSet(FEATURES, label, parameters=parameters, categorical=[2], **fields)
    peer = booster = None
    for seed in (1, 2):  # the second goes on from the text of the first
        before = lightgbm.Booster(model_str=peer.model_to_string()) if peer else None
        own = (lambda raw, rows: _squares(raw, rows.get_label(), rows.get_weight())) if is_own else None
        words = {**parameters, "seed": seed, **({"objective": own} if is_own else {})}
        peer = lightgbm.train(words, theirs, 1, init_model=before, keep_training_booster=True)
        peer.update(fobj=own)
        earlier = Booster.of_text(booster.to_text()) if booster else None
        gradients = (lambda raw, rows: _squares(raw, rows.label, rows.weight)) if is_own else None
        booster = Booster.begin({**parameters, "seed": seed}, ours, earlier, gradients)
        for _ in range(2):
            booster.update(gradients)
    assert booster.to_text() == peer.model_to_string()
    assert booster.to_text(2) == peer.model_to_string(num_iteration=2)
    assert booster.dump()["tree_info"] == peer.dump_model()["tree_info"]
    raw = peer.predict(FEATURES, start_iteration=1, num_iteration=3, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(booster.raw(FEATURES, 1, 3, threads=1), raw.reshape(300, -1))
    if settings.get("metric") != "none":
        assert booster.train_loss() == peer.eval_train()[0][2]


def test_what_lightgbm_refuses_is_said_with_its_reason():
    with pytest.raises(TrainingError, match=r"LightGBM refuses .*classes"):
        Booster.begin({**QUIET, "objective": "multiclass"}, TrainSet(FEATURES, CLASSES), None, None)


def test_trees_are_grown_without_the_libraries_of_the_package():
    code = "import sys, models.training.by_rounds.lightgbm_library; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"lightgbm", "sklearn", "pandas", "scipy"} & {*modules}


def _squares(raw, label, weight):
    return (raw - label) * weight, weight.astype(np.float64)
