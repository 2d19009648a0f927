"""Plain policies are one rule alone; what a loop trains on stays the spec's; a draft wins over the spec's own keys."""

from __future__ import annotations

import pytest

from models.backtest.policies import drafted, in_words, plain
from models.errors import UsageError
from models.project_spec.monitor_and_retrain import Retrain

OWN = Retrain.model_validate(
    {"on": ["decay"], "cooldown_s": 7200, "budget_device_s": 60, "ask": True, "rows": 5000, "start": "champion"}
)


@pytest.mark.parametrize(
    ("name", "on", "schedule"),
    [
        ("never", [], None),
        ("monthly", [], "0 0 1 * *"),
        ("decay", ["decay"], None),
        ("drift", ["drift"], None),
        ("every", ["new_data"], None),
    ],
)
def test_a_plain_policy_is_one_rule_without_guards(name: str, on: list[str], schedule: str | None):
    rules = plain(name, OWN).rules
    assert (rules.on, rules.schedule) == (on, schedule)
    assert (rules.cooldown_s, rules.budget_device_s, rules.ask) == (0, None, False)
    assert (rules.rows, rules.start) == (5000, "champion")
    assert Retrain.model_validate(rules.model_dump()) == rules


def test_the_specs_own_policy_is_left_as_it_is():
    assert plain("spec", OWN).rules is OWN


def test_monthly_without_a_calendar_is_every_thirty_days():
    assert plain("monthly", OWN, has_calendar=False).rules.schedule == "every 30 days"


def test_an_unknown_policy_names_those_there_are():
    with pytest.raises(UsageError, match="--policy: got 'yearly', expected one of never, monthly, decay, drift, every"):
        plain("yearly", OWN)


def test_a_draft_wins_over_the_specs_own_keys():
    policy = drafted("calm", {"retrain": {"cooldown_s": 86400, "ask": False}}, OWN, "calm.yaml")
    assert policy.rules == OWN.model_copy(update={"cooldown_s": 86400.0, "ask": False})
    assert drafted("calm", {"ask": False}, OWN, "calm.yaml").rules.ask is False


def test_a_draft_with_a_mistake_says_where():
    with pytest.raises(UsageError, match=r"calm\.yaml: cooldown: got 3: .*known keys: schedule"):
        drafted("calm", {"cooldown": 3}, OWN, "calm.yaml")
    with pytest.raises(UsageError, match=r"calm\.yaml: got list, expected keys of retrain"):
        drafted("calm", {"retrain": [1]}, OWN, "calm.yaml")


def test_policies_in_words():
    assert in_words(Retrain(cooldown_s=0)) == "nothing begins a loop by itself"
    assert in_words(OWN) == (
        "on decay; cooldown 2 h, at most 60 device-seconds in 30 days, a person is asked (here: always says yes), "
        "newest 5000 rows, from the champion's weights"
    )
