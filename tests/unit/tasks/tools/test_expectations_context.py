"""What validation found is a context that Great Expectations opens; a call that is killed leaves the last one."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from models.validation.expectations import ExpectationCheck
from tasks.host.workspace import Project, Workspace
from tasks.tools.expectations import run_checks
from tasks.tools.expectations_context import write_context
from tests.conftest import MakeProject
from tests.past_loops import add_loop

TABLE = pa.table({"x": [1.0, 2.0, 300.0, None], "low, high": [0.0, 5.0, 0.0, 0.0]})
CHECKS = [
    ExpectationCheck(expectation="column_values_to_be_between", arguments={"column": "x", "max_value": 100}),
    ExpectationCheck(
        expectation="column_pair_values_a_to_be_greater_than_b",
        arguments={"column_A": "x", "column_B": "low, high"},
        severity="warn",
        origin="spec",
    ),
    ExpectationCheck(expectation="column_mean_to_be_between", arguments={"column": "x", "min_value": 0}),
    ExpectationCheck(expectation="column_to_exist", arguments={"column": "absent"}, severity="warn"),
    ExpectationCheck(
        expectation="unexpected_rows_expectation",
        arguments={"unexpected_rows_query": "SELECT * FROM {batch} WHERE x > 100"},
    ),
    ExpectationCheck(expectation="./checks.py:ExpectFew", arguments={}),
]
OWN = """\
import great_expectations.expectations as gxe


class ExpectFew(gxe.ExpectTableRowCountToBeBetween):
    max_value: int = 9
"""


@pytest.fixture
def project(workspace: Workspace, make_project: MakeProject) -> Project:
    """A project with two reports of raw data, the second of which was rejected, and the raw table."""
    project = make_project("tiny")
    workspace.make()
    (project.folder / "checks.py").write_text(OWN)
    report = run_checks(TABLE, CHECKS, "tiny", "tiny/raw", base=project.folder).report
    loop = add_loop(workspace, "tiny", 1, 1.0, folders=False)
    _store(project.state("tiny") / "work/validate-raw/a1", {**report, "stage": "raw", "loop_id": loop})
    _store(project.state("tiny") / f"quarantine/{loop}x/raw", {**report, "when": "2020-01-01T00:00:00+00:00"})
    project.raw.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(TABLE, project.raw)
    return project


def _store(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))


def test_great_expectations_finds_what_the_loops_checked(project: Project) -> None:
    import great_expectations as gx

    assert write_context(project.workspace) == (project.workspace.state / "gx", 2)
    context: Any = gx.get_context(mode="file", project_root_dir=project.workspace.state)
    assert context.config.analytics_enabled is False
    assert [asset.name for asset in context.data_sources.get("loopline").assets] == ["tiny.raw"]

    suite = context.suites.get("tiny.raw")
    assert [expectation.expectation_type for expectation in suite.expectations] == [
        "expect_column_values_to_be_between",
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_mean_to_be_between",
        "expect_column_to_exist",
    ]
    assert suite.expectations[1].column_B == "low, high"
    assert suite.expectations[1].severity == "warning"
    assert "unexpected_rows_expectation, ./checks.py:ExpectFew" in suite.notes[0]

    ran = context.checkpoints.get("tiny.raw").run()
    (own,) = ran.run_results.values()
    stored = [context.validation_results_store.get(key) for key in context.validation_results_store.list_keys()]
    by_loop = {result.meta["run_id"]["run_name"]: result for result in stored}
    assert {"tiny-1", "tiny-1x"} < set(by_loop)
    outcomes = [result.success for result in by_loop["tiny-1"].results]
    assert outcomes == [False, False, True, False, False, True]
    its_own = {result.expectation_config.type: result for result in own.results}
    for result in by_loop["tiny-1"].results[:4]:
        assert result.success == its_own[result.expectation_config.type].success
    first = by_loop["tiny-1"].results[0].result
    assert (first["unexpected_count"], first["partial_unexpected_list"]) == (1, [300.0])
    mean = its_own["expect_column_mean_to_be_between"].result["observed_value"]
    assert by_loop["tiny-1"].results[2].result["observed_value"] == mean
    assert by_loop["tiny-1"].meta["loopline.status"] == "rejected"
    assert Path(context.build_data_docs()["local_site"].removeprefix("file://")).is_file()


def test_a_broken_call_leaves_the_last_context(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_context(project.workspace)
    before = folder.resolve()
    with monkeypatch.context() as patched:
        patched.setattr("tasks.tools.expectations_context._write_result", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_context(project.workspace)
    assert folder.resolve() == before
    (folder.parent / "gx-killed").mkdir()
    write_context(project.workspace)
    assert [path.name for path in folder.parent.glob("gx-*")] == [folder.resolve().name]
