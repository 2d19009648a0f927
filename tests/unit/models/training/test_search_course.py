"""Who is tried next, who is out, when a search over families ends."""

import math
from typing import Any

import numpy as np
import pytest

from models.nets.catalogue import BAG_S
from models.project_spec.blocks import Spec
from models.training.search_course import (
    FEWEST_UNITS,
    FOLDS,
    MOST_ROWS,
    Comparison,
    Scores,
    bag_plan,
    bagged,
    budget_s,
    choose,
    first_round,
    guarded,
    is_stalled,
    jackknife_error,
    left_s,
    next_family,
    summaries,
    why_no_bag,
)
from models.training.search_space import Trial

NETS = {"trees": "trees", "linear": "linear", "linear-2": "linear", "mlp": "mlp"}
"""The family of each model."""


def trial(number: int, net: str, value: float | None, state: str = "complete") -> Trial:
    return Trial.model_validate({"number": number, "state": state, "params": {"model.net": net}, "value": value})


def scores(value: float, noise: float, seed: int) -> Scores:
    rng = np.random.default_rng(seed)
    return Scores(value=value, without=[value + noise * draw for draw in rng.normal(size=20)])


def compared(made: dict[str, Scores], **joined: object) -> Comparison:
    alone = {"weights": {}, "joined": None, "joined_by": "log_loss"}
    return Comparison.model_validate({"scores": made, "constant": 0.5, **alone, **joined})


def test_a_family_that_is_clearly_behind_is_out_and_a_close_one_goes_on() -> None:
    made = {"trees": scores(0.80, 1e-4, 1), "linear": scores(0.60, 1e-4, 2), "mlp": scores(0.79, 1e-4, 3)}
    judged = first_round(made, 0.5, "maximize", "roc_auc")
    assert judged.families == ["trees", "mlp"], "mlp lost 3 % of the gain over a constant, which tuning may win"
    assert judged.gain == pytest.approx(0.3)
    assert "roc_auc 0.6 against 0.8 of trees" in judged.out["linear"]


def test_a_large_lead_within_its_error_decides_nothing() -> None:
    made = {"trees": scores(2.0, 0.2, 1), "linear": scores(2.4, 0.2, 2)}
    assert first_round(made, 4.0, "minimize", "mae").out == {}


def test_without_a_constant_to_compare_with_the_error_alone_decides() -> None:
    made = {"trees": scores(0.80, 1e-5, 1), "mlp": scores(0.79, 1e-5, 3)}
    assert [*first_round(made, float("nan"), "maximize", "own").out] == ["mlp"]


def test_equal_families_go_out_as_often_as_stated() -> None:
    """Two standard errors and more: at most 5 % of equal families, on the metric's own noise."""
    rng = np.random.default_rng(0)
    out = 0
    for _ in range(400):
        gaps = rng.normal(size=(20, 50))
        whole, without = gaps.mean(), np.array([np.delete(gaps, block, axis=0).mean() for block in range(20)])
        pair = {"a": Scores(value=0.0, without=[0.0] * 20), "b": Scores(value=whole, without=without.tolist())}
        out += bool(first_round(pair, float("nan"), "maximize", "m").out)
    assert out / 400 < 0.09  # 2 of 19 degrees of freedom: 6 %


def test_the_first_family_within_a_standard_error_is_chosen() -> None:
    close = {"trees": scores(0.79, 0.01, 1), "linear": scores(0.70, 0.01, 2), "mlp": scores(0.80, 0.01, 3)}
    close["linear-2"] = scores(0.90, 0.0, 4)
    assert [*choose(compared(close), NETS, "maximize", "roc_auc")] == ["trees"], "only the best of a family counts"
    assert choose(compared({**close, "trees": scores(0.6, 0.001, 1)}), NETS, "maximize", "roc_auc") == {
        "mlp": "chosen: the best roc_auc on validation"
    }
    far = {"trees": scores(3.0, 0.01, 1), "mlp": scores(2.0, 0.01, 2)}
    assert [*choose(compared(far), {net: net for net in far}, "minimize", "mae")] == ["mlp"]


def test_an_ensemble_that_is_better_is_chosen_with_the_share_of_each_member() -> None:
    close = {"trees": scores(0.79, 0.01, 1), "linear": scores(0.70, 0.01, 2), "mlp": scores(0.80, 0.01, 3)}
    made = compared(close, weights={"linear": 0.25, "mlp": 0.5, "linear-2": 0.25}, joined=scores(0.8123, 0.01, 5))
    assert choose(made, NETS, "maximize", "roc_auc") == {
        "linear": "chosen: 25% and 25% of an ensemble with better log_loss, and roc_auc 0.8123 on validation",
        "mlp": "chosen: 50% of an ensemble with better log_loss, and roc_auc 0.8123 on validation",
    }
    assert choose(made, NETS, "minimize", "log_loss")["mlp"] == (
        "chosen: 50% of an ensemble with log_loss 0.8123 on validation"
    )


def test_an_ensemble_that_is_clearly_behind_in_the_goal_is_not_taken() -> None:
    alone = {"trees": scores(0.80, 1e-4, 1), "mlp": scores(0.84, 1e-4, 2)}
    far, near = (
        compared(alone, weights={"trees": 0.5, "mlp": 0.5}, joined=scores(at, 1e-4, 3)) for at in (0.76, 0.8399)
    )
    assert (guarded(far, "maximize").weights, guarded(far, "maximize").joined) == ({}, None)
    assert guarded(near, "maximize") == near, "within two standard errors the log loss decides"
    assert guarded(far, "minimize") == far
    assert guarded(compared(alone), "maximize").joined is None


def test_the_jackknife_has_the_error_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(size=2000)
    without = [np.delete(values.reshape(20, 100), block, axis=0).mean() for block in range(20)]
    assert jackknife_error(without) == pytest.approx(1 / np.sqrt(2000), rel=0.5)
    assert jackknife_error([float("nan"), 1.0]) == float("inf")


def test_the_leader_has_every_second_trial_and_the_others_take_turns() -> None:
    trials = [trial(0, "trees", 0.8), trial(1, "linear", 0.7), trial(2, "mlp", 0.75)]
    order = [next_family(("trees", "linear", "mlp"), trials, "maximize", turn) for turn in range(8)]
    assert order == ["trees", "linear", "trees", "mlp", "trees", "linear", "trees", "mlp"]
    assert {next_family(("mlp",), trials, "maximize", turn) for turn in range(3)} == {"mlp"}
    assert next_family(("trees", "mlp"), trials, "minimize", 0) == "mlp"


def test_a_search_ends_when_nothing_improves_by_more_than_the_tolerance() -> None:
    trials = [trial(n, "trees", value) for n, value in enumerate([0.8, 0.7, 0.6, 0.801, 0.7, 0.79])]
    assert is_stalled(trials, "maximize", 5, 0.01)
    assert not is_stalled(trials, "maximize", 5, 0.0)
    assert not is_stalled(trials, "maximize", 4, 0.01, first=3)
    assert is_stalled(trials, "maximize", 3, 0.01, first=3)
    assert not is_stalled([], "maximize", 1, 0.0)


def test_a_summary_says_what_each_family_reached_and_why_it_was_chosen_or_not() -> None:
    trials = [trial(0, "trees", 0.8), trial(1, "linear", 0.6), trial(2, "mlp", None, "failed"), trial(3, "trees", 0.9)]
    families, chosen = ("trees", "linear", "mlp"), {"trees": "chosen: the best"}
    made = summaries(families, trials, chosen, {"linear": "far behind"}, "maximize")
    assert [(row.family, row.trials, row.value) for row in made] == [
        ("trees", 2, 0.9),
        ("linear", 1, 0.6),
        ("mlp", 1, None),
    ]
    assert made[0].outcome == "chosen: the best"
    assert made[1].outcome == "no more trials: far behind"
    assert made[2].outcome.startswith("failed")
    assert summaries(families, trials[:1], chosen, {}, "maximize")[1].outcome.startswith("not tried")
    several = summaries(
        ("trees", "linear", "gru"), [*trials, trial(4, "gru", 0.85)], {"trees": "a", "linear": "b"}, {}, "maximize"
    )
    assert [row.outcome for row in several] == ["a", "b", "not chosen: the ensemble is no better with it"]
    assert (
        several[2].line("roc_auc")
        == "gru reached roc_auc 0.8500 in 1 trials and 0.0 device-seconds; " + several[2].outcome
    )


def test_references_are_told_by_their_short_names() -> None:
    forest, other = "sklearn.ensemble:ExtraTreesClassifier", "./b/boosted.py:FAMILY"
    families, chosen = ("./boosted.py:FAMILY", forest, other), {forest: "chosen: the best"}
    told = summaries(families, [trial(0, forest, 0.8), trial(1, other, 0.6)], chosen, {}, "maximize")
    assert [row.family for row in told] == ["boosted", "ExtraTreesClassifier", "boosted-2"]
    assert told[2].outcome == "not chosen: no better than ExtraTreesClassifier by more than a standard error"


def test_the_budget_follows_the_first_trial_and_counts_work() -> None:
    def worked(*works: float) -> list[Trial]:
        return [trial(n, "trees", 0.5).model_copy(update={"work_s": work}) for n, work in enumerate(works)]

    assert [budget_s(worked(work)) for work in (0.01, 2.0, 500.0)] == [6.0, 30.0, 600.0]
    assert left_s(worked(2.0, 30.0, 9.0), 40.0) == -1.0
    assert left_s(worked(2.0, 30.0), 40.0) == 8.0
    assert left_s(worked(2.0), math.inf) == math.inf
    both = [*worked(2.0), trial(1, "mlp", 0.5).model_copy(update={"work_s": 30.0})]
    assert [left_s(both, 10.0, family) for family in (None, "trees", "mlp", "linear")] == [-22.0, 8.0, -20.0, 10.0]


def reason_of(num_rows: int = 1000, num_units: int | None = None, **blocks: Any) -> str:
    data = {"source": "d.csv", "target": "y", **blocks.pop("data", {})}
    spec = Spec.model_validate({"name": "small", "data": data, **blocks})
    return why_no_bag(spec, spec.data.task or "binary", num_rows, num_rows if num_units is None else num_units)


def test_a_plan_says_whether_bags_are_trained_and_what_they_cost() -> None:
    def outlook(num_rows: int | None, nets: tuple[str, ...] = ("trees", "mlp"), **blocks: Any) -> str:
        data = {"source": "d.csv", "target": "y"}
        return bag_plan(Spec.model_validate({"name": "small", "data": data, **blocks}), nets, "binary", num_rows)

    assert "of a table of 200 to 5,000" in outlook(None)
    assert f"in at most {BAG_S:g} seconds of a reference core" in outlook(1000)
    assert "of a table of" not in outlook(1000)
    assert outlook(150).startswith("search trains no bags: 150 independent units")
    assert outlook(MOST_ROWS + 1).startswith("search trains no bags: 5,001 training")
    assert outlook(1000, search={"bag": False}) == "search trains no bags: search.bag is false"
    assert [outlook(1000, ("trees",)), outlook(1000, ("cnn", "resnet")), outlook(1000, search={"trials": 0})] == [
        ""
    ] * 3


def trial_of(net: str, work_s: float) -> Trial:
    return Trial(number=0, state="complete", params={"model.net": net}, value=0.5, work_s=work_s)


def test_a_small_table_gets_bags() -> None:
    assert not reason_of()
    assert not reason_of(MOST_ROWS)
    assert not reason_of(data={"split": {"by": "group", "column": "g"}, "weight": "w"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"search": {"bag": False}}, "search.bag"),
        ({"search": {"ensemble": False}}, "search.ensemble"),
        ({"search": {"sample": 0.5}}, "search.sample"),
        ({"data": {"split": {"by": "time", "column": "t"}}}, "split by time"),
        ({"num_rows": MOST_ROWS + 1}, "more than"),
        ({"num_rows": 151}, "fewer than"),
        ({"num_units": FEWEST_UNITS - 1}, "independent units"),
        ({"train": {"ema": 0.9}}, "train.ema"),
    ],
)
def test_others_are_told_why_not(changes: dict[str, Any], said: str) -> None:
    """The 151 rows are those of wine, on which a bag of LightGBM lost 29 % to a refit."""
    assert said in reason_of(**changes)


def test_bags_are_of_the_chosen_models_first_and_of_others_while_the_work_allows() -> None:
    share = BAG_S / FOLDS
    candidates = {
        "trees": trial_of("trees", 0.3 * share),
        "linear": trial_of("linear", 0.5 * share),
        "mlp": trial_of("mlp", 0.6 * share),
    }
    assert list(bagged(candidates, {"mlp": candidates["mlp"]})) == ["trees", "mlp"]
    assert list(bagged(candidates, {"linear": candidates["linear"]})) == ["trees", "linear"]
    assert not bagged(candidates, {"linear": candidates["linear"], "mlp": candidates["mlp"]}), "too much work"


def test_a_family_has_one_bag_of_its_best_settings() -> None:
    candidates = {"trees": trial_of("trees", 0.1), "trees-2": trial_of("trees", 0.1), "mlp": trial_of("mlp", 0.1)}
    bags = bagged(candidates, {"trees-2": candidates["trees-2"], "mlp": candidates["mlp"]})
    assert list(bags) == ["trees", "mlp"]
    assert bags["trees"] is candidates["trees"]


def test_a_family_of_unknown_cost_is_in_no_bag() -> None:
    candidates = {"trees": trial_of("trees", 0.1), "./own.py:Net": trial_of("./own.py:Net", 0.1)}
    assert list(bagged(candidates, {"trees": candidates["trees"]})) == ["trees"]
    assert not bagged(candidates, {"./own.py:Net": candidates["./own.py:Net"]})
