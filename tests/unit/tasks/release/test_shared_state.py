"""Follower and workers meet: what is prepared, published, reported; and eight bytes that all of them share."""

import os
import subprocess
import sys

import pytest

from models.serving.releases import Release
from tasks.host import processes
from tasks.release.shared_state import GenerationSwitch, SharedReleaseState, VersionOutcomes, WorkerReport


@pytest.fixture
def board(tmp_path):
    return SharedReleaseState(tmp_path / "serving")


def test_what_is_prepared_is_next_and_what_is_published_answers(board):
    assert (board.release(), board.next(), board.switch.generation) == (None, None, 0)
    board.prepare(Release(generation=1, stable="1"))
    assert (board.release(), board.next().stable, board.switch.generation) == (None, "1", 0)
    board.publish(Release(generation=1, stable="1"))
    assert (board.release().stable, board.next(), board.switch.generation) == ("1", None, 1)
    board.prepare(Release(generation=2, stable="2"))
    board.give_up()
    assert (board.release().stable, board.next()) == ("1", None)


def test_the_switch_is_the_same_in_every_process(tmp_path):
    switch = GenerationSwitch(tmp_path / "switch")
    switch.turn(7)
    code = (
        "from pathlib import Path; from tasks.release.shared_state import GenerationSwitch\n"
        f"switch = GenerationSwitch(Path({str(tmp_path / 'switch')!r})); print(switch.generation); switch.turn(8)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), switch.generation) == ("7", 8)


def test_the_word_of_a_worker_that_lives_counts(board):
    mine = WorkerReport(process=processes.identity(), loaded=["1"], tallies={"1": VersionOutcomes(answers=3)})
    board.report(mine)
    board.report(WorkerReport(process={**processes.identity(), "pid": 999_999_999}))
    board.report(WorkerReport(process={**processes.identity(), "pid": 1, "host": "another"}))
    assert board.reports() == [mine]
    assert [path.name for path in (board.folder / "workers").iterdir()] == [f"{os.getpid()}.json"]
    board.forget(os.getpid())
    assert board.reports() == []


def test_tallies_add_up():
    both = VersionOutcomes(answers=5, failed=1).plus(VersionOutcomes(answers=2, slow=2))
    assert both == VersionOutcomes(answers=7, failed=1, slow=2)
    assert both.minus(VersionOutcomes(answers=5)) == VersionOutcomes(answers=2, failed=1, slow=2)
