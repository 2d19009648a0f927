"""Which version answers, and what answers next: the decisions of a release."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.project_spec.serve import CanaryRule
from models.serving.releases import PLAN, Canary, Release, ReleasePlan, place_of, release_of, taken_back, wanted

AT = 1000.0
NONE = ReleasePlan()
BY_DEGREES = CanaryRule(share=0.25, minutes=10)


def after(now, champion, plan=NONE, refused=None, rule=None, at=AT, promotion=""):
    return wanted(now, champion, plan, refused or {}, rule, at, promotion)


def answering(*versions):
    """The release after these were champions, one after the other."""
    now = Release()
    for version in versions:
        now = after(now, version)
    return now


def test_the_first_champion_answers_and_a_promotion_keeps_the_one_before():
    assert after(Release(), None) == Release()
    first = after(Release(), "1")
    assert (first.generation, first.stable, first.previous, first.since) == (1, "1", None, AT)
    second = after(first, "2")
    assert (second.generation, second.stable, second.previous) == (2, "2", "1")
    assert second.loaded == ["2", "1"]
    assert after(second, "1").loaded == ["1", "2"]


def test_nothing_new_is_the_same_release():
    now = answering("1", "2")
    assert after(now, "2", at=AT + 1) == now
    assert after(now, None) == now, "a registry without a champion changes nothing"


def test_a_refused_version_is_told_and_the_old_one_goes_on():
    now = answering("1")
    told = after(now, "2", refused={"2": "damaged"})
    assert (told.generation, told.stable, told.refused) == (1, "1", {"2": "damaged"})
    assert after(told, "2").stable == "2", "once it is mended"


def test_a_plan_is_tried_beside_its_champion_and_ends_with_it():
    plan = ReleasePlan(canary=Canary(version="2", share=0.1), shadow="3")
    now = after(answering("1"), "1", plan)
    assert (now.stable, now.canary, now.shadow, now.loaded) == ("1", plan.canary, "3", ["1", "2"])
    assert after(now, "1", plan, {"2": "damaged"}).canary is None
    assert after(now, "2").canary is None
    assert after(now, "1").generation == now.generation + 1


def test_a_shadow_alone_changes_no_answer():
    now = answering("1")
    assert after(now, "1", ReleasePlan(shadow="2")).generation == now.generation


def test_a_canary_gives_its_share_back_and_is_not_tried_again_until_the_plan_ends():
    plan = ReleasePlan(canary=Canary(version="2", share=0.1))
    now = after(answering("1"), "1", plan)
    back = taken_back(now, "2", "errors", AT)
    assert back is not None
    assert (back.stable, back.canary, back.returned, back.generation) == ("1", None, {"2": "errors"}, 3)
    assert after(back, "1", plan) == back
    ended = after(back, "1")
    assert ended.returned == {}
    assert after(ended, "1", plan).canary == plan.canary


def test_a_champion_gives_its_place_back_and_is_not_let_in_while_the_registry_names_it():
    back = taken_back(answering("1", "2"), "2", "slow", AT)
    assert back is not None
    assert (back.stable, back.previous) == ("1", None)
    assert after(back, "2") == back
    rolled_back = after(back, "1")
    assert (rolled_back.stable, rolled_back.returned) == ("1", {})
    assert after(rolled_back, "2").stable == "2", "promoted again, it answers again"


def test_there_may_be_nobody_to_take_the_place():
    assert taken_back(answering("1"), "1", "errors", AT) is None
    assert taken_back(answering("1", "2"), "7", "errors", AT) is None


def test_by_the_rule_of_the_spec_a_promotion_is_let_in_by_degrees():
    first = after(Release(), "1", rule=BY_DEGREES)
    assert first.stable == "1", "nothing answers yet: nothing to be careful of"
    trial = after(first, "2", rule=BY_DEGREES)
    assert (trial.stable, trial.canary) == ("1", Canary(version="2", share=0.25, until=AT + 600))
    assert after(trial, "2", rule=BY_DEGREES, at=AT + 599) == trial
    done = after(trial, "2", rule=BY_DEGREES, at=AT + 600)
    assert (done.stable, done.previous, done.canary) == ("2", "1", None)
    assert after(done, "1", rule=BY_DEGREES).stable == "1", "a rollback is at once"
    back = taken_back(trial, "2", "errors", AT)
    assert back is not None
    assert after(back, "2", rule=BY_DEGREES) == back


def test_what_is_promoted_or_tried_again_is_another_release_for_who_missed_the_end():
    first = after(answering("1"), "2", promotion="a")
    assert after(first, "2", promotion="a") == first
    again = after(first, "2", promotion="b")
    assert (again.generation, again.stable, again.trial) == (first.generation + 1, "2", "b")
    plans = [ReleasePlan(canary=Canary(version="3", share=0.1, trial=trial)) for trial in "cd"]
    tried, tried_again = (after(again, "2", plan, promotion="b") for plan in plans)
    assert (tried.trial, tried_again.trial) == ("c", "d")
    assert after(tried, "2", plans[1], promotion="b").generation == tried.generation + 1
    ended = after(tried, "2", promotion="b")
    assert ended.trial == "b"


def test_a_promotion_of_an_older_loopline_gets_its_id_without_a_swap():
    before = answering("1")
    assert (before.trial, after(before, "1", promotion="a").trial) == ("", "a")
    assert after(before, "1", promotion="a").generation == before.generation


def test_a_promotion_that_is_let_in_by_degrees_again_begins_again():
    trial = after(answering("1"), "2", rule=BY_DEGREES, promotion="a")
    assert (trial.canary.until, trial.trial) == (AT + 600, "a")
    again = after(trial, "2", rule=BY_DEGREES, at=AT + 700, promotion="b")
    assert (again.stable, again.canary.until, again.trial) == ("1", AT + 1300, "b")


@given(st.text(), st.floats(0.01, 0.99))
def test_the_same_key_is_answered_by_the_same_version(key, share):
    now = Release(stable="1", canary=Canary(version="2", share=share))
    assert now.pick(key) == now.pick(key) == ("2" if place_of(key) < share else "1")


def test_keys_are_spread_evenly_and_a_larger_share_keeps_its_callers():
    keys = [f"caller-{number}" for number in range(4000)]
    few = {key for key in keys if Release(stable="1", canary=Canary(version="2", share=0.1)).pick(key) == "2"}
    more = {key for key in keys if Release(stable="1", canary=Canary(version="2", share=0.3)).pick(key) == "2"}
    assert 300 < len(few) < 500
    assert few < more


def test_what_was_written_is_read_back():
    now = after(answering("1"), "1", ReleasePlan(canary=Canary(version="2", share=0.1)), {"3": "damaged"})
    assert release_of(now.model_dump(mode="json")) == now
    assert release_of({}) is None


def test_a_plan_is_read_from_the_champions_tags_and_a_strange_one_is_none():
    plan = ReleasePlan(canary=Canary(version="2", share=0.1), shadow="3")
    assert ReleasePlan.of_tags({PLAN: plan.model_dump_json()}) == plan
    assert plan.versions == ["2", "3"]
    for strange in ("", "{", '{"canary": 3}'):
        assert ReleasePlan.of_tags({PLAN: strange}) == NONE
    with pytest.raises(ValidationError):
        Canary(version="2", share=1.0)


def test_a_version_that_is_tried_again_is_not_barred_by_its_earlier_trial() -> None:
    """Also by a server that did not see the registry in between: it would end the new trial for all servers."""
    plan = ReleasePlan(canary=Canary(version="3", share=0.1, trial="first"))
    now = wanted(Release(stable="2", promotion="p"), "2", plan, {}, None, 1.0, "p")
    now = taken_back(now, "3", "errors", 2.0)
    assert now is not None
    assert wanted(now, "2", plan, {}, None, 3.0, "p").returned == {"3": "errors"}
    again = ReleasePlan(canary=Canary(version="3", share=0.1, trial="second"))
    new = wanted(now, "2", again, {}, None, 4.0, "p")
    assert (new.canary, new.returned) == (again.canary, {})


def test_a_champion_that_is_promoted_again_is_not_barred_by_its_earlier_promotion() -> None:
    now = Release(stable="2", promotion="first", previous="1")
    now = taken_back(now, "2", "errors", 2.0)
    assert now is not None
    assert wanted(now, "2", ReleasePlan(), {}, None, 3.0, "first").stable == "1"
    new = wanted(now, "2", ReleasePlan(), {}, None, 4.0, "second")
    assert (new.stable, new.previous, new.returned) == ("2", "1", {})
