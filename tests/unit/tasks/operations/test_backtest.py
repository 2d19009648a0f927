"""A replay says of each policy what its trainings begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.backtest.policies import Policy
from models.project_spec.blocks import Spec
from models.project_spec.monitor_and_retrain import Retrain
from models.training.families import families_of
from tasks.operations.backtest import as_replayed, spec_of_trainings

CHAMPION = Policy("own", Retrain(start="champion"))
SCRATCH = Policy("every", Retrain())


def spec_of(net: str, **arguments: Any) -> Spec:
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y"}})
    model = spec.model.model_copy(update={"net": net, "arguments": arguments})
    return spec.model_copy(update={"model": model})


@pytest.mark.parametrize("net", ["trees", "ensemble", "linear"])
def test_trainings_of_a_model_without_weights_begin_fresh_and_say_so(net: str) -> None:
    policies, notes = as_replayed([CHAMPION, SCRATCH], spec_of(net))
    assert [policy.rules.start for policy in policies] == ["scratch", "scratch"]
    assert "champion" not in policies[0].text
    assert notes == [f"trainings begin fresh: the champion is of model.net {net} and has no weights to begin with"]


def test_a_net_begins_with_the_champion_and_a_policy_that_does_not_ask_gets_no_note() -> None:
    assert as_replayed([CHAMPION, SCRATCH], spec_of("mlp")) == ([CHAMPION, SCRATCH], [])
    assert as_replayed([SCRATCH], spec_of("trees")) == ([SCRATCH], [])


def test_trainings_follow_the_settings_of_a_search_whose_families_were_named() -> None:
    """A family that `search.families` names was refused: the replay has a net, and no choice any more."""
    forest = "sklearn.ensemble:ExtraTreesClassifier"
    block = {"families": [forest, "trees"]}
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y"}, "search": block})
    trained = spec_of_trainings(spec, {"model.net": forest, "model.max_features": 0.3}, Path())
    assert families_of(trained) == (forest,)
    assert trained.model.arguments["max_features"] == 0.3
