"""What is told can be written down and read back, and an empty project tells nothing false."""

from models.report.facts import Overview, ProjectFacts
from tests.told_facts import facts, findings, window, workspace


def test_it_is_plain_data() -> None:
    told = workspace(facts(monitor=findings(window(1))))
    assert Overview.model_validate_json(told.model_dump_json()) == told


def test_the_last_move_made_the_champion() -> None:
    move = facts().champion_since
    assert move is not None
    assert (move.before, move.after) == ("1", "2")


def test_of_a_project_that_was_never_run_nothing_is_known() -> None:
    told = ProjectFacts(name="new", folder="/new")
    assert (told.champion, told.champion_since, told.loop.state, told.history) == (None, None, "never run", [])


def test_windows_of_a_former_champion_are_not_todays() -> None:
    assert [each.id for each in facts(monitor=findings(window(1), window(2, whole=False))).windows] == ["2/1"]
    assert facts(monitor=findings(window(1, version="1"), champion="1")).windows == []
    assert facts(monitor=findings(window(1)), champion=None).windows == []


def test_the_first_training_is_no_retraining() -> None:
    assert ProjectFacts(name="new", folder="/new").training_word == "Train"
    assert ProjectFacts(name="new", folder="/new", registry="it is away").training_word == "Retrain"
    assert facts().training_word == "Retrain"
