"""A search of a small table chooses among bags, by all its rows; of others it stays with what validation chose."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.metrics.metrics import METRICS
from models.project_spec.blocks import Spec
from models.training.costs.summary import Costs
from models.training.families import search_space
from models.training.search_course import Comparison, FirstRound
from models.training.search_space import Trial
from tasks.steps.search_choice import Choice, ModelChoice
from tests.finished_jobs import table_preparation

NETS = ("trees", "linear", "mlp")


def document(values: dict[str, float], **joined: Any) -> dict[str, Any]:
    noise = np.linspace(-1e-3, 1e-3, 20)
    scores = {name: {"value": value, "without": (value + noise).tolist()} for name, value in values.items()}
    return {"scores": scores, "constant": 0.5, "weights": {}, "joined": None, "joined_by": "log_loss", **joined}


ON_VALIDATION = document(dict.fromkeys(NETS, 0.8) | {"mlp": 0.9})
ON_ALL_ROWS = document(
    dict.fromkeys(NETS, 0.82),
    weights={"trees": 0.4, "mlp": 0.6},
    joined={"value": 0.83, "without": (0.83 + np.zeros(20)).tolist()},
)


def choice_of(place: Path, scores: dict[str, Any], num_rows: int = 300, **search: Any) -> tuple[Choice, list[Any]]:
    spec = Spec.model_validate({"name": "t", "data": {"source": "d.csv", "target": "y"}, "search": search})
    tensors = {}
    for split, count in (("train", num_rows), ("validation", 60)):
        tensors[split] = place / f"{split}.safetensors"
        save_file({"target": np.zeros(count)}, tensors[split])
    calls: list[Any] = []

    def call(reference: str, jobs: dict[str, list[Any]]) -> dict[str, Any]:
        calls.append((reference, jobs))
        return {"failed": {}, **scores, "costs": Costs(device_seconds=3.0).model_dump()}

    loop: Any = SimpleNamespace(
        spec=spec,
        report=SimpleNamespace(note=lambda _: None),
        rank_pool=SimpleNamespace(call=call),
    )

    def fold_job(trial: Trial, fold: tuple[int, int]) -> Any:
        job = {"net": trial.params["model.net"], "fold": fold}
        return SimpleNamespace(tensors=tensors, as_json=lambda: job)

    preparation = table_preparation().model_copy(update={"rows": {"train": num_rows, "validation": 60}})
    chooser = ModelChoice(
        loop,
        preparation,
        search_space(spec),
        METRICS["roc_auc"],
        lambda _: Comparison.model_validate(ON_VALIDATION),
        fold_job,
    )
    trials = [
        Trial(number=number, state="complete", params={"model.net": net}, value=ON_VALIDATION["scores"][net]["value"])
        for number, net in enumerate(NETS)
    ]
    candidates = dict(zip(NETS, trials, strict=True))
    return chooser.choose(trials, candidates, FirstRound(families=[*NETS], out={})), calls


def test_bags_are_joined_by_what_all_rows_say(tmp_path: Path):
    choice, calls = choice_of(tmp_path, ON_ALL_ROWS)
    ((reference, jobs),) = calls
    assert reference.endswith(":bag_scores")
    assert [*jobs] == [*NETS]
    assert all([job["fold"] for job in bag] == [(fold, 5) for fold in range(5)] for bag in jobs.values())
    params = choice.facts["params"]
    assert (params["model.net"], params["model.folds"]) == ("ensemble", 5)
    assert [(member["model.net"], member["weight"]) for member in params["model.members"]] == [
        ("trees", 0.4),
        ("mlp", 0.6),
    ]
    assert choice.facts["best_value"] == 0.83
    assert choice.costs is not None
    assert choice.costs.device_seconds == 3.0
    assert choice.facts["bag"] == "each model on 5 folds of training and validation rows"


def test_a_family_alone_is_a_bag_too(tmp_path: Path):
    choice, _ = choice_of(tmp_path, document(dict.fromkeys(NETS, 0.7) | {"linear": 0.82}))
    (member,) = choice.facts["params"]["model.members"]
    assert (member["model.net"], member["weight"], choice.facts["best_value"]) == ("linear", 1.0, 0.82)


def test_a_family_that_failed_on_a_fold_is_told_and_the_others_have_bags(tmp_path: Path):
    choice, _ = choice_of(tmp_path, {**ON_ALL_ROWS, "failed": {"linear": "the loss is NaN"}})
    assert choice.facts["params"]["model.folds"] == 5
    (linear,) = [family for family in choice.facts["families"] if family["family"] == "linear"]
    assert "failed on a fold: the loss is NaN" in linear["outcome"]


def test_what_validation_chose_stays_where_its_family_failed_on_a_fold(tmp_path: Path):
    choice, calls = choice_of(tmp_path, {"failed": {"mlp": "the loss is NaN"}})
    assert len(calls) == 1
    assert choice.facts["params"]["model.net"] == "mlp"
    assert "model.folds" not in choice.facts["params"]
    assert (choice.facts["best_value"], choice.facts["bag"]) == (0.9, "no: mlp failed on a fold: the loss is NaN")
    assert choice.costs is not None, "what failed is paid for too"


@pytest.mark.parametrize(
    ("changes", "reason"), [({"bag": False}, "search.bag is false"), ({"num_rows": 100}, "160 independent units")]
)
def test_what_validation_chose_stays_where_there_are_no_bags(tmp_path: Path, changes: dict[str, Any], reason: str):
    choice, calls = choice_of(tmp_path, ON_ALL_ROWS, **changes)
    assert calls == []
    assert choice.facts["params"]["model.net"] == "mlp"
    assert "model.folds" not in choice.facts["params"]
    assert choice.facts["bag"].startswith(f"no: {reason}")
