import pytest

from models.errors import GateRefused
from models.serving.registry import BEST, KEY
from models.serving.releases import PLAN, PROMOTION, Canary, ReleasePlan
from tasks.host import database
from tasks.state import champion_moves, versions
from tasks.state.champion_moves import champion_of, moves_of, newest_moves
from tasks.state.versions import StoredVersion


@pytest.fixture
def root(tmp_path):
    with database.writing(tmp_path):
        pass
    return tmp_path


def move(root, after_number, project="flights", **fields):
    fields = {"action": "promote", "before": None, "after": "1", "by": "ada@host", **fields}
    with database.writing(root) as connection:
        return champion_moves.record(connection, project, after_number, **fields)


def test_without_a_row_nothing_serves(root, tmp_path):
    assert champion_of(root, "flights") is None
    assert champion_of(tmp_path / "no-workspace", "flights") is None
    assert moves_of(root, "flights") == []


def test_the_newest_row_is_what_serves(root):
    with database.writing(root) as connection:
        versions.save(connection, "flights", StoredVersion("2", "run", "file:///m", {KEY: "k", BEST: "1:abc"}, 3.0))
    first = move(root, 0)
    second = move(root, 1, before="1", after="2", promotion="p2")
    assert [row.number for row in moves_of(root, "flights")] == [2, 1]
    assert (first.id, first.by) != (second.id, "")
    champion = champion_of(root, "flights")
    assert (champion.number, champion.key, champion.tags[PROMOTION]) == ("2", "k", "p2")
    assert champion.tags[BEST] == "1:abc"
    plan = ReleasePlan(canary=Canary(version="3", share=0.1))
    move(root, 2, action="canary", before="2", after="2", promotion="p2", plan=plan, best="")
    champion = champion_of(root, "flights")
    assert ReleasePlan.of_tags(champion.tags) == plan
    assert champion.tags[BEST] == ""
    move(root, 3, action="removed", before="2", after=None)
    assert champion_of(root, "flights") is None


def test_a_plan_that_ended_leaves_an_empty_tag(root):
    move(root, 0)
    assert champion_of(root, "flights").tags[PLAN] == ""


def test_a_decision_that_did_not_see_the_newest_move_is_refused(root):
    move(root, 0)
    with pytest.raises(
        GateRefused, match=r"ada@host moved the champion meanwhile \(promote: the champion is version 1\)"
    ):
        move(root, 0, after="2")
    assert len(moves_of(root, "flights")) == 1


def test_newest_moves_of_several_projects(root):
    for number in range(3):
        move(root, number)
        move(root, number, project="taxis")
    newest = newest_moves(root, ["flights", "taxis", "none"], 2)
    assert {name: [row.number for row in rows] for name, rows in newest.items()} == {
        "flights": [3, 2],
        "taxis": [3, 2],
    }
    assert newest_moves(root, [], 2) == {}
