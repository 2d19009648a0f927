"""A registered version by its tags; who holds the champion's place after any row of promotions and rollbacks."""

from hypothesis import given
from hypothesis import strategies as st

from models.serving.registry import (
    FILES,
    ChampionMove,
    RegisteredVersion,
    champion_words,
    champions_in_force,
    described,
)
from tests.told_facts import verdict


def entry(number: int, action: str, before: str | None, after: str | None) -> ChampionMove:
    return ChampionMove.model_validate(
        {"number": number, "action": action, "before": before, "after": after, "at": 0.0, "by": "h:1"}
    )


def test_that_there_is_no_champion_is_said_in_words() -> None:
    assert [champion_words(number) for number in ("3", None)] == ["the champion is version 3", "there is no champion"]


def test_nothing_happened() -> None:
    assert champions_in_force([]) == []


def test_a_rollback_goes_back_one_and_the_next_one_further() -> None:
    journal = [entry(1, "promote", None, "1"), entry(2, "promote", "1", "2"), entry(3, "promote", "2", "3")]
    assert champions_in_force(journal) == ["1", "2", "3"]
    journal.append(entry(4, "rollback", "3", "2"))
    assert champions_in_force(journal) == ["1", "2"]
    journal.append(entry(5, "rollback", "2", "1"))
    assert champions_in_force(journal) == ["1"]
    journal.append(entry(6, "promote", "1", "4"))
    assert champions_in_force(journal) == ["1", "4"]


@given(st.lists(st.sampled_from(["promote", "rollback"]), max_size=30))
def test_the_place_is_always_that_of_the_last_move(moves: list[str]) -> None:
    journal: list[ChampionMove] = []
    for move in moves:
        held = champions_in_force(journal)
        if move == "promote":
            journal.append(entry(len(journal) + 1, move, held[-1] if held else None, str(len(journal) + 1)))
        elif len(held) > 1:
            journal.append(entry(len(journal) + 1, move, held[-1], held[-2]))
        if journal:
            assert champions_in_force(journal)[-1] == journal[-1].after


def test_a_champion_that_a_person_had_set_in_mlflow_can_be_gone_back_to() -> None:
    assert champions_in_force([entry(1, "promote", "1", "2")]) == ["1", "2"]
    assert champions_in_force([entry(1, "promote", "1", "1"), entry(2, "promote", "1", "2")]) == ["1", "2"]


def test_an_entry_survives_the_store() -> None:
    made = entry(1, "promote", None, "1")
    assert ChampionMove.model_validate_json(made.model_dump_json()) == made


def test_a_version_tells_what_its_tags_hold() -> None:
    tags = {"loopline.weights_sha256": "0123456789abcdef" * 4, "loopline.metric": "auc=1", FILES: '{"a": "b"}'}
    version = RegisteredVersion(number="3", tags=tags)
    assert (version.identity, version.metric, version.hashes) == ("3:0123456789abcdef", "auc=1", {"a": "b"})
    bare = RegisteredVersion(number="3")
    assert (bare.identity, bare.key, bare.metric, bare.hashes, bare.estimate) == ("3:", "", "", {}, None)
    assert bare.model_copy(update={"verdict": verdict()}).estimate == verdict().challenger


def test_a_version_is_described_by_its_verdict_its_data_and_its_loop() -> None:
    tags = {
        "loopline.verdict": "promote: Promoted. First.",
        "loopline.metric": "auc=0.7",
        "loopline.loop_id": "l",
    }
    assert described(tags) == "Promoted. First.\n\n* Test rows: `auc 0.7`\n* Loop: `l`"
    assert described({}) == ""
