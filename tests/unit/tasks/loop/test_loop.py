"""A step is carried out exactly once, whatever kills it."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.pipeline.records import StepRecord
from models.sources import mapped
from tasks.host.workspace import Project
from tasks.loop.lifecycle import open_stage
from tasks.loop.loop import Inputs, Loop, StepResult
from tests.conftest import MakeProject


class Told:
    """Keeps what a loop reports."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def step(self, name: str, state: str, detail: str = "") -> None:
        self.steps.append((name, state))

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        pass

    def note(self, text: str) -> None:
        pass


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


def ingest(loop: Loop, content: str = "raw", calls: list[Path] | None = None) -> tuple[StepRecord, bool]:
    def act(_: Inputs, folder: Path) -> StepResult:
        if calls is not None:
            calls.append(folder)
        loop.project.raw.parent.mkdir(parents=True, exist_ok=True)
        loop.project.raw.write_text(content)
        return StepResult([loop.project.raw], {"rows": 3})

    return loop.carry_out("ingest", act)


def test_a_step_done_is_not_done_again(project: Project) -> None:
    calls: list[Path] = []
    told = Told()
    for expected in (False, True):
        with open_stage(project, told) as loop:
            record, was_done = ingest(loop, calls=calls)
            assert was_done is expected
            assert record.result == {"rows": 3}
            assert loop.ran == ([] if expected else ["ingest"])
    assert len(calls) == 1
    assert told.steps == [("ingest", "run"), ("ingest", "ok"), ("ingest", "done")]


def test_code_that_changes_during_a_loop_is_in_the_next_key(make_project: MakeProject) -> None:
    project = make_project("tiny")
    spec = (project.folder / "project.yaml").read_text()
    (project.folder / "project.yaml").write_text(spec.replace("source: data.csv", "source: ./own.py:load"))
    with open_stage(project, Told()) as loop:
        for number in (1, 2):
            (project.folder / "own.py").write_text(f"def load():\n    return {number}\n")
            assert ingest(loop)[1] is False
        assert ingest(loop)[1] is True


def test_a_step_that_failed_is_done_again_in_the_same_folder(project: Project) -> None:
    folders = []

    def fail(_: Inputs, folder: Path) -> StepResult:
        folders.append(folder)
        (folder / "checkpoint").write_text("half")
        raise KeyboardInterrupt

    told = Told()
    with pytest.raises(KeyboardInterrupt), open_stage(project, told) as loop:
        loop.carry_out("ingest", fail)
    assert told.steps[-1] == ("ingest", "stopped")
    calls: list[Path] = []
    with open_stage(project) as loop:
        _, was_done = ingest(loop, calls=calls)
    assert not was_done
    assert calls == folders
    assert (calls[0] / "checkpoint").read_text() == "half"


def test_a_lost_or_changed_output_is_made_again(project: Project) -> None:
    for spoil in (lambda: project.raw.unlink(), lambda: project.raw.write_text("RAW")):
        with open_stage(project) as loop:
            ingest(loop)
        spoil()
        with open_stage(project) as loop:
            assert ingest(loop)[1] is False


def test_a_refreshed_step_runs_although_it_stands(project: Project) -> None:
    with open_stage(project) as loop:
        ingest(loop)
    with open_stage(project) as loop:
        loop.refresh = frozenset({"ingest"})
        record, was_done = ingest(loop, "more")
    assert not was_done
    assert record.outputs[loop.step_cache.records.name(project.raw)] == loop.step_cache.hashes.of(project.raw)


def test_a_loop_that_goes_on_does_not_refresh_again_what_it_had_refreshed(project: Project) -> None:
    with open_stage(project) as loop:
        loop.refresh = frozenset({"ingest"})
        assert ingest(loop)[1] is False
        assert ingest(loop)[1] is True


def test_the_digest_is_of_the_outputs_so_that_equal_results_change_nothing_after(project: Project) -> None:
    with open_stage(project) as loop:
        first, _ = ingest(loop)
    (project.folder / "data.csv").write_text("x,c,y\n9,u,no\n")
    with open_stage(project) as loop:
        second, was_done = ingest(loop)
    assert not was_done
    assert first.key != second.key
    assert first.digest == second.digest


def test_a_large_table_is_read_in_a_process_of_its_own(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [1]}), table)
    with open_stage(project) as loop:
        assert loop.apart(table, "os:getpid") == os.getpid()
        monkeypatch.setattr(mapped, "LARGE_CELLS", 1)
        assert loop.apart(table, "os:getpid") != os.getpid()
