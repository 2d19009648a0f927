"""When a version loses its place: only when one can be sure."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.judge.verdict import Estimate
from models.monitoring.report import MonitoringReport, WindowReport
from models.project_spec.serve import ReturnOn
from models.serving.auto_rollback import at_least, fallen, trouble_of


@dataclass
class Counted:
    answers: int
    failed: int = 0
    slow: int = 0


RULE = ReturnOn(errors=0.05, latency_ms=20)


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_least_share_lies_under_the_share(count, more):
    total = count + more
    assert 0 <= at_least(count, total) <= (count / total if total else 0)


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        (Counted(0), None),
        (Counted(2, failed=1), None),
        (Counted(100, failed=5), None),
        (Counted(10, failed=10), "10 of 10 answers failed in the model"),
        (Counted(1000, failed=90), "90 of 1000 answers failed"),
        (Counted(1000, slow=50), None),
        (Counted(1000, slow=90), "90 of 1000 answers took longer than 20 ms a row"),
    ],
)
def test_a_place_is_lost_by_errors_and_latency_when_it_is_sure(counted, said):
    found = trouble_of(counted, RULE)
    assert found is None if said is None else found is not None and said in found


def test_what_the_spec_says_null_to_costs_nothing():
    assert trouble_of(Counted(100, failed=100, slow=100), ReturnOn(errors=None)) is None


def window(version, begin, decayed, realised=0.7, whole=True):
    return WindowReport(
        id=f"{version}/{int(begin)}",
        version=version,
        begin=begin,
        end=begin + 1,
        num_predictions=100,
        whole=whole,
        realised=None if realised is None else Estimate(value=realised),
        num_measured=90,
        decayed=decayed,
        state="red" if decayed else "green",
        reason="",
    )


def findings(*windows):
    return MonitoringReport(project="tiny", at=0.0, metric="roc_auc", windows=list(windows))


def test_a_realised_metric_that_fell_where_the_one_before_held_costs_the_place():
    told = fallen(findings(window("1", 1, False), window("2", 10, True)), "2", "1", 5)
    assert told == "its realised roc_auc fell to 0.7 over 90 labelled predictions"
    assert fallen(findings(window("2", 10, True)), "2", "1", 5) is not None


@pytest.mark.parametrize(
    "windows",
    [
        [],
        [window("2", 10, False)],
        [window("2", 10, True), window("2", 11, False)],
        [window("2", 4, True)],
        [window("2", 10, True, whole=False)],
        [window("2", 10, True, realised=None)],
        [window("1", 1, True), window("2", 10, True)],
    ],
    ids=["none", "fine", "fine again", "from before", "part", "no labels", "the world changed for both"],
)
def test_nothing_else_does(windows):
    assert fallen(findings(*windows), "2", "1", 5) is None
