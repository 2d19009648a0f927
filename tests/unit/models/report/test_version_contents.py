"""Two versions side by side: only what differs of the specs, each slice of either, costs that were measured."""

from __future__ import annotations

from models.judge.verdict import Estimate, ServingCost, Slice
from models.report.version_contents import (
    VersionContents,
    compared_costs,
    compared_metrics,
    compared_slices,
    curves,
    differing_keys,
)
from models.serving.registry import RegisteredVersion
from tests.told_facts import verdict


def part(value: str, metric: float) -> Slice:
    return Slice(column="sex", value=value, num_samples=40, challenger=Estimate(value=metric))


def test_only_keys_that_differ_are_shown_in_dotted_form() -> None:
    ours = {"train": {"lr": 0.1, "epochs": 3}, "data": {"columns": ["a"], "features": {}}}
    theirs = {"train": {"lr": 0.1, "epochs": 4}, "data": {"columns": ["a", "b"], "features": {}, "id": "k"}}
    rows = {row.name: (row.ours, row.theirs) for row in differing_keys(ours, theirs)}
    assert rows == {"train.epochs": (3, 4), "data.columns": (["a"], ["a", "b"]), "data.id": (None, "k")}


def test_metrics_of_both_are_beside_each_other_and_the_goal_comes_first() -> None:
    ours = verdict(metrics={"f1": {"challenger": 0.5}}, challenger=Estimate(value=0.75))
    theirs = verdict(metrics={"f1": {"challenger": 0.25}, "brier": {"champion": 0.1}}, challenger=Estimate(value=0.5))
    rows = compared_metrics(ours, theirs)
    assert [(row.name, row.difference) for row in rows] == [(ours.metric, 0.25), ("f1", 0.25)]


def test_a_slice_of_one_of_them_has_no_difference() -> None:
    ours, theirs = verdict(slices=[part("m", 0.75), part("f", 0.5)]), verdict(slices=[part("m", 0.5)])
    rows = compared_slices(ours, theirs)
    assert [(row.name, row.difference) for row in rows] == [("sex = m", 0.25), ("sex = f", None)]
    assert compared_slices(ours, theirs.model_copy(update={"metric": "another"})) == []


def test_costs_that_neither_has_are_left_out() -> None:
    cost = verdict(challenger_cost=ServingCost(latency_ms=0.5))
    ours = RegisteredVersion(number="2", tags={"loopline.cost.device_seconds": "3.5"}, verdict=cost)
    rows = compared_costs(ours, RegisteredVersion(number="1", tags={"loopline.cost.device_seconds": "1.5"}))
    assert [(row.ours, row.theirs, row.difference) for row in rows] == [(3.5, 1.5, 2.0), (0.5, None, None)]


def test_curves_of_both_are_in_one_chart_for_what_both_measure() -> None:
    version = RegisteredVersion(number="1")
    net = VersionContents(version, fits={"": [{"train_loss": 1.0, "val_auc": 0.5}, {"train_loss": 0.5}]})
    bag = VersionContents(version, fits={"trees": [{"val_auc": 0.6}]})
    charts = curves({"version 2": net, "version 1": bag}, "auc")
    assert {title: [line.name for line in lines] for title, lines in charts.items()} == {
        "Loss on training rows": ["version 2"],
        "auc on validation rows": ["version 2", "version 1, trees"],
    }
    assert charts["Loss on training rows"][0].points == [(1.0, 1.0), (2.0, 0.5)]
