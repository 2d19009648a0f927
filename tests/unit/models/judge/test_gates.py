"""The words of the gates: what was got, what was asked, and the cure."""

import pytest

from models.judge.gates import champion_gate, number, sample_gate, signed
from models.judge.verdict import Difference, Estimate, Verdict
from models.project_spec.blocks import Judge


def verdict(difference, direction="maximize", **rules):
    return Verdict(
        task="binary",
        metric="roc_auc",
        direction=direction,
        rules=Judge(**rules),
        num_samples=500,
        challenger=Estimate(value=0.75),
        champion=Estimate(value=0.74),
        difference=difference,
    )


def test_an_interval_that_straddles_says_how_to_decide_it():
    open_question = Difference(value=0.01, low=-0.01, high=0.03, p_value=0.3)
    assert "set judge.margin to what you could afford to lose" in champion_gate(verdict(open_question)).reason
    assert "more test examples would decide" in champion_gate(verdict(open_question, mode="superiority")).reason


def test_a_clear_loss_is_told_without_a_cure():
    loss = Difference(value=-0.02, low=-0.03, high=-0.01, p_value=1.0)
    reason = champion_gate(verdict(loss, margin=0.005)).reason
    assert reason == (
        "not shown to be no worse than the champion by more than 0.005: "
        "roc_auc is worse by 0.02 (95 % interval of the gain −0.03 to −0.01)"
    )


def test_words_follow_the_direction_of_the_metric():
    less = Difference(value=-0.02, low=-0.03, high=-0.01, p_value=0.001, reached=True)
    reason = champion_gate(verdict(less, direction="minimize", mode="superiority")).reason
    assert "is better by 0.02 (95 % interval of the gain +0.01 to +0.03)" in reason


def test_no_interval_is_told_and_never_promotes():
    unknown = Difference(value=0.1)
    gate = champion_gate(verdict(unknown))
    assert not gate.passed
    assert "no interval" in gate.reason
    assert "undefined" in champion_gate(verdict(Difference(value=None))).reason


def test_sample_gate_names_the_rule():
    assert sample_gate(verdict(None, min_samples=501)).reason.endswith("judge.min_samples asks for 501")
    assert sample_gate(verdict(None, min_samples=500)).passed


@pytest.mark.parametrize(("value", "text"), [(None, "undefined"), (0.74619, "0.7462"), (-1e-5, "−1e−05")])
def test_numbers_in_words(value, text):
    assert number(value) == text


def test_signs_in_words():
    assert [signed(each) for each in (0.0, 0.01234, -2.0)] == ["0", "+0.0123", "−2"]


def test_too_few_units_name_the_cure():
    difference = Difference(value=0.0)
    few = verdict(difference, unit="month").model_copy(update={"num_clusters": 2})
    assert "judge.unit is month: name a shorter one" in sample_gate(few).reason
    few = verdict(difference).model_copy(update={"num_clusters": 2})
    assert sample_gate(few).reason.endswith("2 clusters, at least 5 are needed; take a larger test split")
