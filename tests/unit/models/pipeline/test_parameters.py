"""A run's parameters are what decides its model: set keys and chosen values, no default."""

from models.pipeline.parameters import set_parameters, trained_parameters
from models.project_spec.blocks import Spec

SPEC = Spec.model_validate(
    {
        "name": "tiny",
        "goal": {"metric": "accuracy"},
        "data": {
            "source": "a.csv",
            "target": "y",
            "split": {"by": "stratified", "test": 0.25},
            "features": {"drop": ["z"]},
        },
        "search": {"trials": 4, "space": {"train.lr": {"low": 0.01, "high": 0.1}}},
        "train": {"lr": 0.01, "epochs": 3, "augment": {"noise": 0.1}},
        "model": {"net": "mlp", "arguments": {"hidden": 64}},
    }
)


def test_what_the_spec_sets_before_the_training_and_no_default():
    assert set_parameters(SPEC) == {
        "goal.metric": "accuracy",
        "data.source": "a.csv",
        "data.target": "y",
        "data.split.by": "stratified",
        "data.split.test": 0.25,
        "search.trials": 4,
    }


def test_chosen_values_replace_those_of_the_spec():
    assert trained_parameters(SPEC, "mlp", {"train.lr": 0.05, "model.hidden": 32}) == {
        "model.net": "mlp",
        "model.hidden": 32,
        "train.lr": 0.05,
        "train.epochs": 3,
        "train.augment.noise": 0.1,
    }
