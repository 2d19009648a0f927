"""The guard sees what came since a version took its place, in all workers, and what monitoring found."""

import pytest

from models.files import write_json, write_text
from models.serving.releases import Canary, Release
from tasks.release.rollback_guard import RollbackGuard
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tasks.state.findings import FINDINGS_FILE
from tests.unit.models.serving.test_auto_rollback import findings, window


@pytest.fixture
def guard(tmp_path):
    return RollbackGuard(tmp_path, tmp_path / "versions")


def report(pid, **tallies):
    told = {
        version.removeprefix("v"): VersionOutcomes(answers=count, failed=failed)
        for version, (count, failed) in tallies.items()
    }
    return WorkerReport(process={"pid": pid, "started": "boot/1"}, tallies=told)


NOW = Release(generation=1, stable="2", previous="1")


def test_what_came_before_the_release_does_not_count(guard):
    assert guard.look(NOW, [report(7, v2=(100, 100))]) is None
    assert guard.look(NOW, [report(7, v2=(101, 100))]) is None
    version, why = guard.look(NOW, [report(7, v2=(200, 150))])
    assert (version, why) == ("2", "50 of 100 answers failed in the model, surely more than 0.05 of them")


def test_workers_add_up_and_those_that_ended_count_on(guard):
    guard.look(NOW, [])
    guard.look(NOW, [report(7, v2=(10, 5)), report(8, v2=(10, 5))])
    assert guard.tallies()["2"] == VersionOutcomes(answers=20, failed=10)
    guard.look(NOW, [report(9, v2=(10, 5))])
    assert guard.tallies()["2"] == VersionOutcomes(answers=30, failed=15)


def test_the_canary_is_looked_at_first_and_by_its_own_spec(guard, tmp_path):
    now = NOW.model_copy(update={"canary": Canary(version="3", share=0.1)})
    guard.look(now, [])
    bad = [report(7, v2=(100, 100), v3=(100, 100))]
    assert guard.look(now, bad)[0] == "3"
    write_json(tmp_path / "versions" / "3" / "spec.json", {"serve": {"return_on": {"errors": None}}})
    assert guard.look(now, bad)[0] == "2"


@pytest.mark.parametrize("now", [Release(generation=1, stable="2"), Release(generation=1, stable="1", previous="2")])
def test_with_nobody_to_come_back_to_it_stays(guard, now):
    guard.look(now, [])
    assert guard.look(now, [report(7, v1=(100, 100), v2=(100, 100))]) is None


def test_a_realised_metric_that_fell_is_read_from_what_monitoring_wrote(guard, tmp_path):
    guard.look(NOW, [])
    write_text(tmp_path / FINDINGS_FILE, findings(window("1", 1, False), window("2", 10, True)).model_dump_json())
    assert guard.look(NOW, []) == ("2", "its realised roc_auc fell to 0.7 over 90 labelled predictions")
    write_text(tmp_path / FINDINGS_FILE, "{")
    assert guard.look(NOW, []) is None
