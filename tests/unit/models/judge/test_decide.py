"""The decision table of promotion, and the replay of a verdict."""

import numpy as np
import pytest

from models.data.target_encoding import OutputColumn
from models.errors import DataError, UsageError
from models.judge.baseline import trivial_baseline
from models.judge.decide import judge, replay
from models.judge.evidence import Evidence
from models.judge.verdict import Parity, ServingCost, Verdict
from models.metrics.metrics import METRICS, resolve_metric
from models.project_spec.blocks import Judge

NUM = 1500
AUC = METRICS["roc_auc"]


def scores(noise, seed=0, num=NUM, flip=None):
    """A target and the probabilities of a model that sees it through noise."""
    target = np.random.default_rng(99).integers(0, 2, num)
    signal = target + np.random.default_rng(seed).normal(0, noise, num)
    if flip is not None:
        signal = np.where(flip, 1 - signal, signal)
    return target, 1 / (1 + np.exp(-4 * (signal - 0.5)))


def evidence(challenger=0.6, champion=None, **more):
    target, ours = scores(challenger)
    theirs = None if champion is None else scores(champion)[1]
    baseline = trivial_baseline("binary", target, target).prediction
    return Evidence(
        **{
            "task": "binary",
            "target": target,
            "challenger": ours,
            "champion": theirs,
            "baseline": baseline,
            **more,
        }
    )


def rules(**more):
    return Judge(**{"resamples": 200, "min_samples": 100, **more})


def failed(verdict):
    return [gate.name for gate in verdict.failed]


def test_first_model_is_judged_against_goal_and_baseline_alone():
    verdict = judge(evidence(), rules(), AUC, good_enough=0.8)
    assert verdict.promoted
    assert [gate.name for gate in verdict.gates] == ["sample", "goal", "baseline"]
    assert "First model" in verdict.summary
    assert verdict.champion is None
    assert verdict.difference is None


def test_first_model_below_the_goal_is_kept_back():
    verdict = judge(evidence(), rules(), AUC, good_enough=0.99)
    assert (verdict.decision, failed(verdict)) == ("keep", ["goal"])
    assert "goal.good_enough is 0.99 at least" in verdict.reasons[1]


def test_a_model_no_better_than_the_baseline_is_kept_back():
    target, _ = scores(1)
    blind = np.random.default_rng(5).random(len(target))
    verdict = judge(evidence(challenger=0.6, champion=None), rules(), AUC)
    assert verdict.promoted
    verdict = judge(Evidence("binary", target, blind, baseline=np.full(len(target), 0.5)), rules(), AUC)
    assert failed(verdict) == ["baseline"]


@pytest.mark.parametrize(
    ("challenger", "champion", "mode", "margin", "promoted"),
    [
        (0.6, 1.0, "superiority", 0.0, True),  # clearly better
        (0.6, 1.0, "noninferiority", 0.0, True),
        (0.6, 1.0, "superiority", 0.3, False),  # better, but not by the margin
        (1.0, 0.6, "superiority", 0.0, False),  # clearly worse
        (1.0, 0.6, "noninferiority", 0.01, False),
        (1.0, 0.6, "noninferiority", 0.3, True),  # worse, but within what may be lost
        (0.61, 0.6, "superiority", 0.0, False),  # a little worse
        (0.61, 0.6, "noninferiority", 0.0, False),
        (0.61, 0.6, "noninferiority", 0.02, True),
        (0.6, 0.6, "superiority", 0.0, False),  # the very same predictions
        (0.6, 0.6, "noninferiority", 0.0, True),
    ],
)
def test_better_worse_and_within_the_margin(challenger, champion, mode, margin, promoted):
    verdict = judge(evidence(challenger, champion), rules(mode=mode, margin=margin), AUC)
    assert verdict.promoted is promoted, verdict.reasons
    assert failed(verdict) == ([] if promoted else ["champion"])


def test_without_a_margin_the_test_set_gives_one_and_the_verdict_says_so():
    verdict = judge(evidence(0.61, 0.6), rules(), AUC)
    assert verdict.promoted
    assert 0 < verdict.test_set_margin == verdict.margin < 0.05
    assert "(what this test set can resolve)" in " ".join(verdict.reasons)
    assert not judge(evidence(1.0, 0.6), rules(), AUC).promoted
    assert judge(evidence(0.61, 0.6), rules(margin=0.02), AUC).test_set_margin is None
    assert judge(evidence(0.61, 0.6), rules(mode="superiority"), AUC).margin == 0


def test_the_summary_names_the_margin_and_where_it_came_from():
    assert "(margin 0.02, judge.margin)." in judge(evidence(0.6, 0.6), rules(margin=0.02), AUC).summary
    unnamed = judge(evidence(0.6, 0.61), rules(), AUC)
    assert f"(margin {unnamed.margin:.4g}, from the test set)." in unnamed.summary
    assert "margin" not in judge(evidence(0.6, 0.61), rules(mode="superiority"), AUC).summary


def test_for_a_metric_to_minimise_less_is_better():
    target = np.random.default_rng(0).normal(size=400)
    close, far = target + 0.1, target + np.random.default_rng(1).normal(0.5, 0.1, 400)
    base = {"task": "regression", "target": target, "baseline": np.zeros(400)}
    better = judge(Evidence(challenger=close, champion=far, **base), rules(mode="superiority"), METRICS["mae"], 0.2)
    assert better.promoted
    assert better.difference.value < 0
    assert "is better by" in " ".join(better.reasons)
    worse = judge(Evidence(challenger=far, champion=close, **base), rules(), METRICS["mae"], 0.2)
    assert failed(worse) == ["champion", "goal"]


def test_too_few_examples_refuse_even_where_the_metric_is_undefined():
    verdict = judge(
        Evidence("binary", np.zeros(20, int), np.linspace(0, 1, 20), np.linspace(0, 1, 20)), rules(), AUC, 0.5
    )
    assert failed(verdict)[0] == "sample"
    assert "too few test examples: 20, judge.min_samples asks for 100" in verdict.reasons[1]
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_enough_examples_of_one_class_are_an_error_that_says_so():
    with pytest.raises(DataError, match="roc_auc is undefined on 200 examples with 1 distinct"):
        judge(Evidence("binary", np.zeros(200, int), np.linspace(0, 1, 200)), rules(), AUC)


def test_few_clusters_refuse_and_many_widen_the_interval():
    few = judge(evidence(clusters=np.arange(NUM) % 4), rules(), AUC)
    assert failed(few) == ["sample"]
    assert few.num_clusters == 4
    assert judge(evidence(clusters=np.arange(NUM) // 50), rules(), AUC).promoted


@pytest.mark.parametrize(
    ("cost", "more", "serve", "names"),
    [
        (ServingCost(latency_ms=2.0, size_mb=5.0), {"max_latency_ms": 3.0, "max_size_mb": 9.0}, None, []),
        (ServingCost(latency_ms=2.0), {"max_latency_ms": 1.0}, 5.0, ["latency"]),
        (ServingCost(latency_ms=2.0), {"max_latency_ms": 5.0}, 1.0, ["latency"]),
        (ServingCost(size_mb=12.0), {"max_size_mb": 9.0}, None, ["size"]),
        (ServingCost(), {"max_size_mb": 9.0}, 1.0, ["latency", "size"]),
    ],
)
def test_costs_over_the_limit_or_never_measured_refuse(cost, more, serve, names):
    verdict = judge(evidence(challenger_cost=cost), rules(**more), AUC, max_latency_ms=serve)
    assert failed(verdict) == names


def test_an_export_that_predicts_something_else_refuses():
    off = Parity(max_difference=1e-2, tolerance=1e-4, num_examples=64, label_flips=1)
    assert failed(judge(evidence(parity=off), rules(), AUC)) == ["parity"]
    near = off.model_copy(update={"max_difference": 1e-6})
    assert judge(evidence(parity=near), rules(), AUC).promoted


def test_a_losing_slice_refuses_only_where_slices_are_gated():
    column = np.where(np.arange(NUM) % 5 == 0, "b", np.where(np.arange(NUM) % 2 == 0, "a", "c"))
    target, challenger = scores(0.2, flip=column == "b")
    given = Evidence("binary", target, challenger, scores(1.5)[1], slices={"place": column})
    shown = judge(given, rules(), AUC)
    assert shown.promoted, shown.reasons
    assert {each.value: each.lost for each in shown.slices} == {"a": False, "b": True, "c": False}
    gated = judge(given, rules(slice_margin=0.05), AUC)
    assert failed(gated) == ["slices"]
    assert "place = b" in gated.reasons[1]
    assert judge(given, rules(slice_margin=1.0), AUC).promoted


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_mcnemar_decides_on_accuracy(margin):
    accuracy = METRICS["accuracy"]
    asked = rules(test="mcnemar", margin=margin)
    assert judge(evidence(0.5, 1.0), asked, accuracy).promoted
    assert judge(evidence(1.0, 0.5), asked, accuracy).promoted is (margin == 0.5)
    assert judge(evidence(0.5, 0.5), asked, accuracy).promoted
    assert failed(judge(evidence(0.5, 0.5), rules(test="mcnemar", mode="superiority"), accuracy)) == ["champion"]


def test_mcnemar_for_another_metric_is_refused():
    with pytest.raises(UsageError, match=r"mcnemar is for accuracy, goal\.metric is roc_auc"):
        judge(evidence(), rules(test="mcnemar"), AUC)


def test_a_metric_of_your_own_is_judged_too(tmp_path):
    (tmp_path / "own.py").write_text(
        "def cost(target, prediction): return float(((prediction > .5) != target).sum())\n"
    )
    cost = resolve_metric("./own.py:cost", "binary", tmp_path, "minimize")
    assert judge(evidence(0.5, 1.0), rules(mode="superiority", resamples=100), cost).promoted


def test_every_ready_metric_of_every_model_is_in_the_verdict():
    verdict = judge(evidence(champion=1.0), rules(), AUC)
    assert set(verdict.metrics["log_loss"]) == {"challenger", "champion", "baseline"}
    assert set(verdict.metrics) == {
        "roc_auc",
        "pr_auc",
        "accuracy",
        "precision",
        "recall",
        "balanced_accuracy",
        "f1",
        "log_loss",
        "brier",
        "ece",
    }


def test_a_verdict_survives_json_and_the_same_evidence_gives_it_again():
    given = evidence(champion=1.0, slices={"place": np.arange(NUM) % 3}, champion_id="7", challenger_id="8")
    verdict = judge(given, rules(slice_margin=0.0), AUC, good_enough=0.7, seed=4)
    read = Verdict.model_validate_json(verdict.model_dump_json())
    assert read == verdict
    assert read.champion_id == "7"
    assert replay(read, given, AUC) == (True, [])


def test_a_verdict_that_was_changed_does_not_replay():
    given = evidence(champion=1.0)
    verdict = judge(given, rules(), AUC)
    forged = verdict.model_copy(update={"decision": "keep", "challenger": verdict.champion})
    again = replay(forged, given, AUC)
    assert not again.same
    assert any(line.startswith("challenger.value: was 0.7") for line in again.differences)
    assert "decision: was 'keep', is 'promote'" in again.differences


def test_replay_with_other_evidence_names_what_differs():
    verdict = judge(evidence(champion=1.0), rules(), AUC)
    with pytest.raises(DataError, match=r"other values in champion$"):
        replay(verdict, evidence(champion=1.1), AUC)
    with pytest.raises(DataError, match=r"other values in champion$"):
        replay(verdict, evidence(), AUC)


def test_a_weight_counts_like_so_many_equal_examples():
    rng = np.random.default_rng(0)
    target, prediction, weights = rng.integers(0, 2, 400), rng.random(400), rng.integers(0, 4, 400).astype(float)
    weighted = Evidence("binary", target, prediction, baseline=np.full(400, 0.4), weights=weights)
    index = np.repeat(np.arange(400), weights.astype(int))
    repeated = Evidence("binary", target[index], prediction[index], baseline=np.full(len(index), 0.4))
    verdicts = [judge(each, rules(resamples=100), AUC) for each in (weighted, repeated)]
    for name, values in verdicts[0].metrics.items():
        assert values["challenger"] == pytest.approx(verdicts[1].metrics[name]["challenger"], abs=1e-9), name
    assert "weights" in weighted.digests()


def test_each_lead_time_has_the_figures_of_all_models_and_an_interval():
    rng, leads = np.random.default_rng(0), np.array([1.0, 2.0])
    target = rng.normal(size=(200, 2))
    outputs = [OutputColumn(name=f"h{ahead}", column=f"h{ahead}", horizon=ahead) for ahead in (1, 2)]
    ours, theirs, naive = (target + scale * leads * rng.normal(size=(200, 2)) for scale in (0.5, 0.6, 1.0))
    rows = Evidence(
        "regression", target, ours, champion=theirs, baseline=naive, outputs=outputs, clusters=np.arange(200) // 5
    )
    near, far = judge(rows, Judge(), METRICS["mae"].of(outputs)).outputs
    assert near.challenger["mae"] < near.champion["mae"] < near.baseline["mae"] < far.baseline["mae"]
    assert near.goal.low < near.challenger["mae"] < near.goal.high < far.goal.low
    assert near.goal.value == pytest.approx(np.abs(target - ours)[:, 0].mean())
