"""Metrics of rankings against scikit-learn's, group by group, and the rate of false gains when groups are resampled."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, ndcg_score

from models.errors import DataError
from models.judge.comparison import Threshold, resample_models
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.metrics import ranking
from models.metrics.metrics import METRICS, measure, metrics_for, resolve_metric
from models.project_spec.blocks import Judge
from models.project_spec.goal import Goal


def ranked(seed: int = 0, num_groups: int = 40, digits: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Grades with their groups, and scores, in any order; with few digits many scores are equal."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups) * 7, rng.integers(1, 20, num_groups))
    grade = rng.integers(0, 4, len(group))
    score = np.round(grade / 3 + rng.normal(size=len(group)), digits)
    order = rng.permutation(len(group))
    return np.stack([grade, group], axis=1).astype(np.float64)[order], score[order]


def groups(target: np.ndarray, score: np.ndarray):
    """The grades and scores of each group that has an order."""
    for group in np.unique(target[:, 1]):
        rows = target[:, 1] == group
        if len(np.unique(target[rows, 0])) > 1:
            yield target[rows, 0], score[rows]


def value(metric, target, score):
    return metric(target, score)(np.ones(len(target)))


@pytest.mark.parametrize("k", [None, 1, 5])
def test_ndcg_is_the_mean_of_scikit_learns_over_the_groups_also_with_ties(k):
    target, score = ranked()
    expected = np.mean([ndcg_score([2**grade - 1], [scores], k=k) for grade, scores in groups(target, score)])
    name = "ndcg" if k is None else f"ndcg_at_{k}"
    assert resolve_metric(name, "ranking", None).value(target, score) == pytest.approx(expected)


def test_map_and_mrr_are_of_the_relevant_rows():
    target, score = ranked(digits=9)
    precisions = [average_precision_score(grade > 0, scores) for grade, scores in groups(target, score)]
    assert value(ranking.average_precision, target, score) == pytest.approx(np.mean(precisions))
    firsts = [1 / (1 + np.flatnonzero(grade[np.argsort(-scores)] > 0)[0]) for grade, scores in groups(target, score)]
    assert value(ranking.reciprocal_rank, target, score) == pytest.approx(np.mean(firsts))
    one = np.array([[0, 0], [1, 0], [0, 0], [2, 0]]), np.array([4.0, 3.0, 2.0, 1.0])
    assert METRICS["map"].value(*one) == pytest.approx((1 / 2 + 2 / 4) / 2)
    assert resolve_metric("map_at_2", "ranking", None).value(*one) == pytest.approx(1 / 2 / 2)
    assert resolve_metric("mrr_at_1", "ranking", None).value(*one) == 0.0


@pytest.mark.parametrize("metric", metrics_for("ranking"), ids=lambda metric: metric.name)
def test_only_the_order_within_a_group_counts_and_a_drawn_group_counts_as_often(metric):
    target, score = ranked(digits=9)
    moved = np.exp(score) + 100 * np.sin(target[:, 1])
    assert metric.value(target, moved) == pytest.approx(metric.value(target, score))
    assert metric.value(target, target[:, 0]) == pytest.approx(1.0)
    drawn = np.random.default_rng(1).integers(0, 3, 40)[metric.units(target)].astype(np.float64)
    index, again = ranking.drawn(target, drawn)
    assert len(np.unique(again[:, 1])) > len(np.unique(target[index, 1]))
    assert metric.evaluator(target, score)(drawn) == pytest.approx(metric.value(again, score[index]))


def test_an_own_metric_sees_a_group_that_was_drawn_twice_as_two(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\n\ndef num(target, score):\n    return len(np.unique(target[:, 1]))\n"
    )
    metric = resolve_metric("./own.py:num", "ranking", tmp_path, "maximize")
    target, score = ranked()
    assert metric.evaluator(target, score)(np.full(len(target), 3.0)) == 3 * metric.value(target, score)


def test_groups_without_an_order_do_not_count_and_alone_they_are_no_ranking():
    target = np.array([[1, 0], [1, 0], [0, 1], [2, 1]], dtype=np.float64)
    assert METRICS["ndcg"].value(target, np.array([0.0, 1.0, 0.0, 1.0])) == 1.0
    with pytest.raises(DataError, match="ndcg is undefined on 2 examples, of which no group has two different grades"):
        measure(METRICS["ndcg"], target[:2], np.zeros(2))


def test_the_rows_order_at_the_source_gives_nothing_away():
    size, num = 20, 400
    grade = np.tile(np.arange(size, 0, -1) > 15, num)  # the relevant rows come first
    target = np.stack([grade, np.repeat(np.arange(num), size)], axis=1).astype(np.float64)
    equal = np.zeros(len(target))
    chance = np.random.default_rng(0).random(len(target))
    for name in ("ndcg", "map", "mrr"):
        assert METRICS[name].value(target, equal) == pytest.approx(METRICS[name].value(target, chance), abs=0.03)


def test_a_cutoff_is_written_as_the_field_writes_it():
    assert Goal(metric="ndcg@10").reference == "ndcg_at_10"
    assert Goal(metric="map").reference == "map"
    assert resolve_metric("ndcg_at_10", "ranking", None).name == "ndcg_at_10"


@pytest.mark.parametrize(
    ("num_groups", "repeats"),
    [(30, 75), *(pytest.param(number, 2000, marks=pytest.mark.soak) for number in (15, 30, 200))],
)
def test_groups_show_a_gain_that_is_none_in_at_most_4_of_100_verdicts(num_groups, repeats):
    rng, better = np.random.default_rng(3), 0
    for repeat in range(repeats):
        group = np.repeat(np.arange(num_groups), rng.integers(5, 15, num_groups))
        grade = rng.integers(0, 3, len(group))
        target = np.stack([grade, group], axis=1)
        skill = rng.normal(0.5, 1.0, (2, num_groups))[:, group]  # one query suits this model, the next suits the other
        scores = grade * skill + rng.normal(size=(2, len(group)))
        models = {"challenger": scores[0], "champion": scores[1]}
        result = resample_models(METRICS["ndcg"], target, models, 200, repeat, group)
        better += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    assert better / repeats <= 0.04


def few_of_many(num_counted: int, rng: np.random.Generator) -> np.ndarray:
    """Grades with their groups (example, 2): groups of eight rows, and 300 of one row, which have no order."""
    group = np.r_[np.repeat(np.arange(num_counted), 8), num_counted + np.arange(300)]
    grade = np.r_[np.tile([0, 0, 0, 1, 1, 1, 2, 3], num_counted), rng.integers(0, 4, 300)]
    return np.stack([grade, group], axis=1).astype(np.float64)


def test_only_groups_with_an_order_are_units_of_the_verdict():
    rng, better = np.random.default_rng(0), 0
    for repeat in range(100):
        target = few_of_many(6, rng)
        scores = {name: rng.normal(size=len(target)) for name in ("challenger", "champion")}
        result = resample_models(METRICS["ndcg"], target, scores, 100, repeat, METRICS["ndcg"].units(target))
        better += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    assert result.num_units == 6
    assert better <= 4


def test_each_group_is_one_unit_however_long():
    group = np.repeat(np.arange(20), [1000, *[10] * 19])
    target = np.stack([np.arange(len(group)) % 2, group], axis=1).astype(np.float64)
    assert resample_models(METRICS["ndcg"], target, {"challenger": target[:, 0]}, 1, 0, group).num_units == 20


def test_too_few_groups_with_an_order_give_no_verdict():
    target = few_of_many(4, np.random.default_rng(0))
    column = np.where(target[:, 1] < 4, "ordered", "alone")
    models = {"challenger": target[:, 0], "champion": -target[:, 0], "baseline": np.zeros(len(target))}
    evidence = Evidence("ranking", target, **models, clusters=METRICS["ndcg"].units(target), slices={"kind": column})
    verdict = judge(evidence, Judge(resamples=100), METRICS["ndcg"])
    assert not verdict.promoted
    assert "they fall into 4 groups with different grades, at least 5 are needed" in verdict.reasons[1]
    assert all("not tested" in each.note and each.p_holm is None for each in verdict.slices)
