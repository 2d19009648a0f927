"""Each case in which MLflow and the rows differ has its rule."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from models.serving.registry import KEY, MLFLOW, Action, ChampionMove, back_from
from models.serving.registry_comparison import (
    JOURNAL,
    MARK,
    MOVED_BY,
    OWNER,
    Intent,
    Projection,
    RegistryComparison,
    RegistryState,
    adopted,
    compare,
    is_written_here,
    joined,
    journal_text,
    mark_of,
)
from models.serving.releases import PLAN, PROMOTION, Canary, ReleasePlan

NOW = 1000.0
OURS = {version: {KEY: f"k{version}"} for version in "1234"}


def row(number: int, before: str | None, after: str | None, action: str = "promote", **fields: Any) -> ChampionMove:
    fields = {"id": f"id-{number}", "at": 0.0, "by": "ada@host", **fields}
    return ChampionMove(number=number, action=action, before=before, after=after, **fields)


ROWS = [row(1, None, "1"), row(2, "1", "2")]


def shown(rows: list[ChampionMove], champion: str | None, owner: str = "home", **fields: Any) -> RegistryState:
    """MLflow as a carrier leaves it after these rows, but for the alias."""
    tags = {JOURNAL + f"{move.number:06d}": json.dumps({**move.model_dump(), "workspace": owner}) for move in rows}
    tags |= {OWNER: owner, MARK: mark_of(rows[-1])}
    aliases = {"champion": champion} if champion else {}
    return RegistryState(**{"aliases": aliases, "tags": tags, "versions": OURS, **fields})


def carried(rows: list[ChampionMove], **fields: Any) -> Projection:
    newest = rows[-1]
    settled = {"number": newest.number, "alias": newest.after, "mark": mark_of(newest), "looked": NOW}
    return Projection(**{**settled, **fields})


def compared(
    rows: list[ChampionMove], projection: Projection, state: RegistryState, *, is_closed: bool = False
) -> RegistryComparison:
    return compare(rows, projection, "1234", state, "home", NOW, is_closed=is_closed)


def heard(comparison: RegistryComparison) -> tuple[str, str | None, str | None, str] | None:
    move = comparison.move
    return move and (move.action, move.before, move.after, move.by)


def test_where_nobody_moved_anything_nothing_is_done():
    assert compared(ROWS, carried(ROWS), shown(ROWS, "2")) == RegistryComparison()
    assert compared([], Projection(), RegistryState(versions=OURS)) == RegistryComparison()
    assert compared([], Projection(), RegistryState(exists=False)) == RegistryComparison()


def test_a_move_in_mlflow_is_a_row_and_is_carried():
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, "3"))
    assert heard(comparison) == ("promote", "2", "3", MLFLOW)
    assert comparison.carries
    assert comparison.move.number == 3
    assert comparison.move.promotion


def test_a_tool_may_name_itself_for_the_version_that_it_sets():
    named = {MOVED_BY: '{"version": "1", "actor": "server a", "reason": "errors", "action": "rollback"}'}
    state = shown(ROWS, "1")
    state = replace(state, tags={**state.tags, **named})
    comparison = compared(ROWS, carried(ROWS), state)
    assert heard(comparison) == ("rollback", "2", "1", "server a")
    assert comparison.move.reason == "errors"
    elsewhere = compared(ROWS, carried(ROWS), replace(state, aliases={"champion": "3"}))
    assert heard(elsewhere) == ("promote", "2", "3", MLFLOW)
    broken = compared(ROWS, carried(ROWS), replace(state, tags={**state.tags, MOVED_BY: "{"}))
    assert heard(broken) == ("promote", "2", "1", MLFLOW)


def test_a_server_may_name_the_end_of_a_plan_that_it_knew():
    plan = ReleasePlan(canary=Canary(version="3", share=0.1, trial="t"))
    rows = [*ROWS, row(3, "2", "2", "canary", plan=plan, promotion="p2")]
    named = {MOVED_BY: '{"version": "2", "actor": "server a", "reason": "errors", "action": "return"}'}
    state = shown(rows, "2")
    state = replace(state, tags={**state.tags, **named})
    comparison = compared(rows, carried(rows), state)
    assert heard(comparison) == ("return", "2", "2", "server a")
    assert (comparison.move.plan, comparison.move.promotion, comparison.carries) == (ReleasePlan(), "p2", True)
    late = replace(state, tags={**shown(ROWS, "2").tags, **named})
    assert heard(compared(rows, carried(ROWS), late)) is None, "the server did not know move 3"
    ended = [*rows, row(4, "2", "2", "end")]
    late = replace(state, tags={**shown(ended, "2").tags, **named})
    assert heard(compared(ended, carried(ended), late)) is None, "the plan has ended already"


def test_a_row_that_waits_is_carried():
    rows = [*ROWS, row(3, "2", "3")]
    assert compared(rows, carried(ROWS), shown(ROWS, "2")) == RegistryComparison(carries=True)


def test_a_row_that_waits_wins_over_a_move_in_mlflow():
    rows = [*ROWS, row(3, "2", "3", plan=ReleasePlan(shadow="1"), promotion="p", best="")]
    comparison = compared(rows, carried(ROWS), shown(ROWS, "4"))
    assert heard(comparison) == ("overruled", "3", "3", MLFLOW)
    assert comparison.move.reason == (
        "version 4 was set in MLflow, while a move waited to be carried there: version 3 was put back"
    )
    assert (comparison.move.plan, comparison.move.promotion, comparison.move.best) == (rows[2].plan, "p", "")
    assert comparison.carries
    again = [*rows, comparison.move.model_copy(update={"id": "id-4"})]
    assert compared(again, carried(ROWS), shown(ROWS, "4")) == RegistryComparison(carries=True), "it is said once"


def test_a_move_to_what_waits_is_no_other_move():
    rows = [*ROWS, row(3, "2", "3")]
    assert compared(rows, carried(ROWS), shown(ROWS, "3")) == RegistryComparison(carries=True)


def test_a_killed_carrier_is_no_person():
    rows = [*ROWS, row(3, "2", "3")]
    setting = carried(ROWS, intents=(Intent("3", NOW + 1),))
    assert compared(rows, setting, shown(ROWS, "3")) == RegistryComparison(carries=True), "killed after the alias"
    assert compared(rows, setting, shown(rows, "3")) == RegistryComparison(), "killed after the mark"
    assert heard(compared(rows, setting, shown(rows, "4"))) == ("promote", "3", "4", MLFLOW)


def test_what_a_late_carrier_sets_is_put_back_while_its_intent_lives():
    late = carried(ROWS, intents=(Intent("1", NOW),))
    assert compared(ROWS, late, shown(ROWS, "1")) == RegistryComparison(carries=True)
    gone = carried(ROWS, intents=(Intent("1", NOW - 1),))
    assert heard(compared(ROWS, gone, shown(ROWS, "1"))) == ("promote", "2", "1", MLFLOW)
    marked = compared(ROWS, carried(ROWS), shown(ROWS[:1], "1"))
    assert heard(marked) == ("overruled", "2", "2", MLFLOW)
    assert marked.carries


def test_a_champion_that_was_deleted_in_mlflow_is_removed():
    versions = {number: tags for number, tags in OURS.items() if number != "2"}
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, None, versions=versions))
    assert heard(comparison) == ("removed", "2", None, MLFLOW)
    assert comparison.removed == ("2",)
    assert back_from([*ROWS, comparison.move], ["2"]) == "1"
    closed = compared(ROWS, carried(ROWS), shown(ROWS, None, versions=versions), is_closed=True)
    assert heard(closed) == heard(comparison), "it cannot come back"


def test_an_alias_that_was_deleted_in_mlflow_leaves_no_champion():
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, None))
    assert heard(comparison) == ("removed", "2", None, MLFLOW)
    assert comparison.removed == ()
    assert back_from([*ROWS, comparison.move], []) == "2"


def test_a_removed_champion_does_not_take_back_a_row_that_waits():
    rows = [*ROWS, row(3, "2", "3")]
    versions = {number: tags for number, tags in OURS.items() if number != "2"}
    comparison = compared(rows, carried(ROWS), shown(ROWS, None, versions=versions))
    assert (comparison.move, comparison.removed, comparison.carries) == (None, ("2",), True)


def test_a_version_that_loopline_did_not_register_is_put_back():
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, "9", versions={**OURS, "9": {"a": "b"}}))
    assert heard(comparison) == ("overruled", "2", "2", MLFLOW)
    assert comparison.move.reason == (
        "version 9 was set in MLflow, which Loopline did not register: version 2 was put back"
    )
    assert compared([], Projection(), RegistryState({"champion": "9"}, {}, {"9": {}})).move is None


@pytest.mark.parametrize("alias", ["3", None])
def test_where_promotions_go_through_loopline_alone_a_move_is_put_back(alias):
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, alias), is_closed=True)
    assert heard(comparison) == ("overruled", "2", "2", MLFLOW)
    assert comparison.carries


def test_mlflow_restored_from_a_copy_is_carried_again_and_said():
    comparison = compared(ROWS, carried(ROWS), shown(ROWS[:1], "1"))
    assert heard(comparison) == ("overruled", "2", "2", MLFLOW)
    assert comparison.move.reason.endswith("it held move 1: version 2 was put back")
    assert comparison.carries


def test_mlflow_restored_from_before_the_champion_keeps_the_decision():
    versions = {"1": OURS["1"]}
    comparison = compared(ROWS, carried(ROWS), shown(ROWS[:1], "1", versions=versions))
    assert heard(comparison) == ("overruled", "2", "2", MLFLOW)
    assert comparison.removed == ()
    assert back_from(ROWS, comparison.removed) == "1"
    empty = compared(ROWS, carried(ROWS), RegistryState(versions=versions))
    assert empty.move.reason.endswith("it held no move: version 2 was put back")


def test_a_registered_model_that_was_renamed_or_deleted_changes_nothing():
    assert compared(ROWS, carried(ROWS), RegistryState(exists=False)) == RegistryComparison()


def test_a_restored_database_reads_the_newer_rows_back():
    rows = [*ROWS, row(3, "2", "3"), row(4, "3", "2", "rollback")]
    comparison = compared(ROWS, carried(ROWS), shown(rows, "2"))
    assert comparison == RegistryComparison(read_back=tuple(rows[2:]))
    moved = compared(ROWS, carried(ROWS), shown(rows, "4"))
    assert (moved.read_back, heard(moved)) == (tuple(rows[2:]), ("promote", "2", "4", MLFLOW))
    assert moved.move.number == 5


def test_both_restored_from_different_moments_go_on_from_the_newer():
    rows = [*ROWS, row(3, "2", "3")]
    assert compared(ROWS, carried(ROWS[:1]), shown(rows, "3")) == RegistryComparison(read_back=(rows[2],))
    assert heard(compared(rows, carried(rows), shown(ROWS, "2"))) == ("overruled", "3", "3", MLFLOW)


def test_a_copied_workspace_that_runs_beside_ours_is_a_conflict():
    other = [*ROWS, row(3, "2", "4", id="of-the-copy")]
    rows = [*ROWS, row(3, "2", "3")]
    comparison = compared(rows, carried(ROWS), shown(other, "4"))
    assert "MLflow holds another move 3" in comparison.conflict
    assert (comparison.move, comparison.read_back, comparison.carries) == (None, (), False)


def old(*moves: ChampionMove, champion: str | None, previous: str | None = None, **fields: Any) -> RegistryState:
    """MLflow as an older Loopline left it."""
    tags = {f"{JOURNAL}{move.number:06d}": move.model_dump_json(include=_OLD) for move in moves}
    aliases = {"champion": champion, "previous": previous}
    found = {name: version for name, version in aliases.items() if version}
    return RegistryState(**{"aliases": found, "tags": tags, "versions": OURS, **fields})


_OLD = {"number", "at", "by", "reason", "action", "before", "after", "loop_id"}


def test_the_journal_of_an_older_loopline_becomes_rows_at_the_first_look():
    plan = ReleasePlan(canary=Canary(version="3", share=0.1))
    tags = {**OURS["2"], PROMOTION: "p2", PLAN: plan.model_dump_json()}
    state = old(*ROWS, champion="2", previous="1", versions={**OURS, "2": tags})
    comparison = compared([], Projection(), state)
    assert comparison.move is None
    assert [(move.number, move.before, move.after, move.by) for move in comparison.read_back] == [
        (1, None, "1", "ada@host"),
        (2, "1", "2", "ada@host"),
    ]
    assert (comparison.read_back[1].promotion, comparison.read_back[1].plan) == ("p2", plan)
    assert len({move.id for move in comparison.read_back}) == 2
    assert compared([], Projection(), state) == comparison, "the same ids at every look"
    assert comparison.carries


def test_a_move_by_hand_before_the_upgrade_is_heard():
    comparison = compared([], Projection(), old(*ROWS, champion="3", previous="1"))
    assert heard(comparison) == ("promote", "2", "3", MLFLOW)
    assert comparison.move.number == 3
    back = compared([], Projection(), old(*ROWS, champion="1", previous="1"))
    assert heard(back) == ("promote", "2", "1", MLFLOW)
    alone = compared([], Projection(), old(champion="3"))
    assert heard(alone) == ("promote", None, "3", MLFLOW)


@pytest.mark.parametrize(
    ("rows", "champion", "previous"), [(ROWS, "1", None), (ROWS[:1], None, None), ([*ROWS, row(3, "2", "3")], "2", "1")]
)
def test_a_move_that_an_older_loopline_did_not_finish_is_carried(rows, champion, previous):
    comparison = compared([], Projection(), old(*rows, champion=champion, previous=previous))
    assert (len(comparison.read_back), comparison.move, comparison.carries) == (len(rows), None, True)


def after_the_way_back(*moves: ChampionMove, champion: str) -> RegistryState:
    """MLflow after an older Loopline went on where ours had carried ROWS."""
    before = shown(ROWS, champion)
    return replace(before, tags={**before.tags, **old(*moves, champion=champion).tags})


def test_an_upgrade_after_the_way_back_reads_both_and_carries_what_the_older_one_did():
    comparison = compared([], Projection(), after_the_way_back(row(3, "2", "3"), champion="3"))
    assert [move.after for move in comparison.read_back] == ["1", "2", "3"]
    assert [move.id for move in comparison.read_back[:2]] == ["id-1", "id-2"]
    assert (comparison.owner, comparison.conflict, comparison.move) == ("", "", None)
    by_hand = compared([], Projection(), after_the_way_back(row(3, "2", "3"), champion="4"))
    assert heard(by_hand) == ("promote", "3", "4", MLFLOW)
    rows = [*by_hand.read_back, by_hand.move.model_copy(update={"id": "heard"})]
    carried_on = compared(rows, Projection(), after_the_way_back(row(3, "2", "3"), champion="4"))
    assert (carried_on.move, carried_on.carries) == (None, True)


def test_an_older_loopline_reads_every_move_of_the_journal():
    for action in (name for group in get_args(Action) for name in get_args(group)):
        move = row(3, "2", "2", action, plan=ReleasePlan(shadow="1"))
        text = journal_text(move, "home")
        assert json.loads(text)["action"] in ("promote", "rollback"), "an older Loopline refuses the others"
        assert RegistryState(tags={f"{JOURNAL}000003": text}).journal() == [("home", move)]


def test_a_tag_without_our_workspace_is_not_trusted_once_there_are_rows():
    """An older Loopline that still runs: its move of the alias is heard as any tool's."""
    late = row(9, "2", "3", id="")
    state = shown(ROWS, "3")
    state = replace(state, tags={**state.tags, f"{JOURNAL}000009": late.model_dump_json(include=_OLD)})
    comparison = compared(ROWS, carried(ROWS), state)
    assert (comparison.read_back, heard(comparison)) == ((), ("promote", "2", "3", MLFLOW))


def test_a_model_of_another_workspace_is_followed_and_not_touched():
    comparison = compared(ROWS, carried(ROWS), shown(ROWS, "3", owner="theirs"))
    assert (comparison.owner, comparison.carries) == ("theirs", False)
    assert heard(comparison) == ("promote", "2", "3", MLFLOW)
    untold = shown(ROWS, "2", owner="theirs")
    tags = {name: text for name, text in untold.tags.items() if name != OWNER}
    assert compared([], Projection(), replace(untold, tags=tags)).owner == "theirs", "by its journal"


def test_a_rollback_goes_to_the_last_champion_that_is_not_removed():
    rows = [*ROWS, row(3, "2", "3"), row(4, "3", "3", "canary", plan=ReleasePlan(shadow="1"))]
    assert back_from(rows, []) == "2"
    assert back_from(rows, ["2"]) == "1"
    assert back_from(rows, ["1", "2"]) is None
    assert back_from([], []) is None


def test_a_workspace_that_lost_its_model_says_so_once_and_follows():
    lost = compared(ROWS, carried(ROWS, owner="home"), shown(ROWS, "2", owner="theirs"))
    assert heard(lost) == ("adopt", "2", "2", MLFLOW)
    assert "workspace theirs adopted the model" in lost.move.reason
    followed = compared([*ROWS, lost.move], Projection(owner="theirs"), shown(ROWS, "2", owner="theirs"))
    assert followed == RegistryComparison(owner="theirs")


def test_a_follower_has_the_plan_and_no_version_that_loopline_did_not_register():
    plan = ReleasePlan(canary=Canary(version="3", share=0.1))
    tags = {**OURS["2"], PROMOTION: "p2", PLAN: plan.model_dump_json()}
    state = shown(ROWS, "2", owner="theirs", versions={**OURS, "2": tags, "9": {}})
    followed = compared([], Projection(), state).move
    assert (followed.after, followed.plan, followed.promotion) == ("2", plan, "p2")
    assert compared([followed], Projection(owner="theirs"), state).move is None
    unknown = compared([followed], Projection(owner="theirs"), replace(state, aliases={"champion": "9"}))
    assert heard(unknown) == ("removed", "2", None, MLFLOW)


def test_a_model_without_a_tag_is_ours_by_the_loops_or_the_workspace_in_its_journal():
    older = old(row(1, None, "1", loop_id="t-1"), champion="1")
    assert is_written_here(older, Projection(), "home", ["t-1"])
    assert not is_written_here(older, Projection(), "home", ["t-2"])
    assert is_written_here(older, Projection(owner="home"), "home", []), "MLflow was restored from before the tag"
    untold = replace(
        shown(ROWS, "2"), tags={f"{JOURNAL}000001": json.dumps({**ROWS[0].model_dump(), "workspace": "a"})}
    )
    assert is_written_here(untold, Projection(), "a", [])
    assert not is_written_here(untold, Projection(owner="home"), "home", ["t-1"])


def test_the_moves_of_the_former_owner_come_after_the_rows_of_the_one_who_adopts():
    theirs = shown(ROWS, "2", owner="theirs")
    assert joined([], theirs) == ROWS
    own = [row(1, None, "2", id="own")]
    after = joined(own, theirs)
    assert [(move.number, move.id) for move in after] == [(2, "id-1"), (3, "id-2")]
    assert joined([*own, *after], theirs) == []
    taken = adopted([*own, *after], theirs, None, by="bob", reason="gone")
    assert (taken.number, taken.action, taken.before, taken.after) == (4, "adopt", "2", "2")


def test_two_courses_of_one_workspace_that_were_joined_are_no_conflict_and_ours_stays():
    """A restored database went on before MLflow was looked at: the later decision is the database's."""
    rows = [*ROWS, row(3, "2", "3", id="after-the-restore")]
    lost = shown([*ROWS, row(3, "2", "4")], "4")
    assert compared(rows, carried(ROWS), lost).conflict
    after = joined(rows, lost)
    kept = adopted([*rows, *after], lost, rows[-1], by="ada", reason="restored").model_copy(update={"id": "id-5"})
    assert [(move.number, move.after) for move in [*after, kept]] == [(4, "4"), (5, "3")]
    comparison = compared([*rows, *after, kept], carried(ROWS, alias="4", mark=lost.mark), lost)
    assert (comparison.conflict, comparison.move, comparison.carries) == ("", None, True)
