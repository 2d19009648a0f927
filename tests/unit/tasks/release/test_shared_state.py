"""Follower and workers meet: what is prepared, published, reported; and eight bytes that all of them share."""

import os
import subprocess
import sys

import pytest

from models.serving.releases import Release
from tasks.host import processes
from tasks.release.shared_state import SharedNumber, SharedReleaseState, VersionOutcomes, WorkerReport


@pytest.fixture
def release_state(tmp_path):
    return SharedReleaseState(tmp_path / "serving")


def test_what_is_prepared_is_next_and_what_is_published_answers(release_state):
    assert (release_state.release(), release_state.next(), release_state.switch.value) == (None, None, 0)
    release_state.prepare(Release(generation=1, stable="1"))
    assert (release_state.release(), release_state.next().stable, release_state.switch.value) == (None, "1", 0)
    release_state.publish(Release(generation=1, stable="1"))
    assert (release_state.release().stable, release_state.next(), release_state.switch.value) == ("1", None, 1)
    release_state.prepare(Release(generation=2, stable="2"))
    release_state.give_up()
    assert (release_state.release().stable, release_state.next()) == ("1", None)


def test_the_switch_is_the_same_in_every_process(tmp_path):
    switch = SharedNumber(tmp_path / "switch")
    switch.set(7)
    code = (
        "from pathlib import Path; from tasks.release.shared_state import SharedNumber\n"
        f"switch = SharedNumber(Path({str(tmp_path / 'switch')!r})); print(switch.value); switch.set(8)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), switch.value) == ("7", 8)


def test_the_word_of_a_worker_that_lives_counts(release_state):
    mine = WorkerReport(process=processes.identity(), loaded=["1"], tallies={"1": VersionOutcomes(answers=3)})
    release_state.report(mine)
    release_state.report(WorkerReport(process={**processes.identity(), "pid": 999_999_999}))
    release_state.report(WorkerReport(process={**processes.identity(), "pid": 1, "host": "another"}))
    assert release_state.reports() == [mine]
    assert [path.name for path in (release_state.folder / "workers").iterdir()] == [f"{os.getpid()}.json"]
    release_state.forget(os.getpid())
    assert release_state.reports() == []


def test_tallies_add_up():
    both = VersionOutcomes(answers=5, failed=1).plus(VersionOutcomes(answers=2, slow=2))
    assert both == VersionOutcomes(answers=7, failed=1, slow=2)
    assert both.minus(VersionOutcomes(answers=5)) == VersionOutcomes(answers=2, failed=1, slow=2)
