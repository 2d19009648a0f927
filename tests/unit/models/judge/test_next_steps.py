"""What to try after a refusal: from the sizes of gains and intervals."""

import numpy as np
import pytest

from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.next_steps import next_steps
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Judge


def refused(gain, num=400, good_enough=None, **rules):
    """A verdict on errors of about 1, of which the challenger's are smaller by `gain`."""
    rng = np.random.default_rng(0)
    target, common = np.zeros(num), 1 + rng.exponential(size=num)
    noise = rng.normal(0, 0.5, num)
    challenger = common - gain + noise - noise.mean()
    evidence = Evidence(task="regression", target=target, challenger=challenger, champion=common)
    return judge(evidence, Judge(mode="superiority", **rules), METRICS["mae"], good_enough)


def test_a_gain_that_the_rows_do_not_show_says_how_many_would():
    verdict = refused(0.03)
    (sentence,) = next_steps(verdict)
    reach = (verdict.difference.high - verdict.difference.low) / 2
    more = ((reach / 0.03) ** 2 - 1) * 400
    assert "beyond what is required" in sentence
    number = float(sentence.partition("about ")[2].partition(" more")[0].replace(",", ""))
    assert number == pytest.approx(more, rel=0.05)


def test_a_loss_says_what_is_lacking_and_that_rows_do_not_help():
    (sentence,) = next_steps(refused(-0.2))
    assert sentence.startswith("Against the champion it lacks 0.2 of mae: a better model is needed")


def test_a_goal_that_is_missed_says_by_how_much_and_whether_it_may_be_chance():
    value = refused(0.2).challenger.value
    near, far = (next_steps(refused(0.2, good_enough=value - missed))[-1] for missed in (0.01, 0.5))
    assert near.startswith("It misses goal.good_enough by 0.01 of mae, and the interval of these 400 test rows holds")
    assert "by 0.5 of mae, more than chance explains" in far


def test_a_promoted_model_needs_nothing():
    assert next_steps(refused(0.3)) == []
