"""Writes what validation found as a file context of Great Expectations, which its own functions and Data Docs open.

It is made of the reports that loops store, so that a loop spends nothing on it. The data source `loopline` has an asset
`PROJECT.STAGE` for each table on this machine, with a batch definition; a suite, a validation definition and a
checkpoint have the same name, and each loop that checked the table has a validation result.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from models.files import read_json, storing
from models.project_spec.references import is_own_code
from models.validation.expectation_arguments import COLUMN_ARGUMENTS, EXPECTATIONS, QUERY
from tasks.host.locks import FOREVER_S, held
from tasks.host.workspace import Project, Workspace
from tasks.tools.expectations import library, type_of

SOURCE, BATCH = "loopline", "newest"
STAGES = {"raw": "raw/raw.parquet", "prepared": "prepared/rows.parquet"}
"""The stages that are checked, and their tables below the project's `data/`."""


class _Report(NamedTuple):
    """The report of a validation: which loop checked which data of which project."""

    project: str
    stage: str
    loop: str
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of suite, validation definition and checkpoint: the tool's files allow no slash."""
        return f"{self.project}.{self.stage}"


def write_context(workspace: Workspace) -> tuple[Path, int]:
    """Write the context anew, in place of the last one; return its folder and the number of validation results.

    A call that is killed leaves the last context as it was. Reports of loops on other machines are not in it.

    Cost: about 10 ms of CPU a result and 16 ms a table, after the import of Great Expectations (4 s).

    Raises:
        StoreError: The folder cannot be written.
    """
    reports = _reports(workspace)
    newest = {report.name: report for report in reports}  # they are sorted by time
    with _replaced(workspace.expectations, workspace.locks / "gx.lock") as folder:
        context = library().get_context(mode="file", context_root_dir=folder)
        context.enable_analytics(enable=False)
        suites = {name: _write_suite(context, report) for name, report in newest.items()}
        _write_checkpoints(context, _tables(newest.values(), workspace), suites)
        for report in reports:
            _write_result(context, report)
    return workspace.expectations, len(reports)


def _reports(workspace: Workspace) -> list[_Report]:
    """Return the reports that lie on this machine, those of rejected data too, in the order of their time."""
    reports = {}
    projects = workspace.state / "projects"
    for path in (*projects.glob("*/work/*/*/report.json"), *projects.glob("*/quarantine/*/*/report.json")):
        content = read_json(path)
        stage = content.get("stage", path.parent.name)
        loop = content.get("loop_id", path.parent.parent.name)
        if stage in STAGES and content.get("project"):
            reports[content["project"], stage, loop] = _Report(content["project"], stage, loop, content)
    return sorted(reports.values(), key=lambda report: (report.content["when"], report.name, report.loop))


@contextmanager
def _replaced(link: Path, lock: Path) -> Iterator[Path]:
    """Yield an empty folder to which a link leads after the block, in one step; the folder before is removed."""
    with held(lock, lambda: f"{link}: in use", FOREVER_S), storing(link):
        folder = Path(tempfile.mkdtemp(dir=link.parent, prefix=f"{link.name}-"))
        try:
            yield folder
            new = link.with_name(f".{link.name}.{os.getpid()}.tmp")
            new.unlink(missing_ok=True)
            new.symlink_to(folder.name)
            new.replace(link)
        finally:
            for earlier in link.parent.glob(f"{link.name}-*"):
                if earlier.name != link.resolve().name:
                    shutil.rmtree(earlier, ignore_errors=True)


def _write_suite(context: Any, report: _Report) -> Any:
    """Write the checks of a report as a suite.

    Queries and a team's own classes are named in the suite's notes instead: Great Expectations asks no data frame by
    SQL, and drops the check of a class that its reader has not imported.
    """
    results = report.content["results"]
    left_out = [name for name in (result["expectation"] for result in results) if name == QUERY or is_own_code(name)]
    suite = library().ExpectationSuite(
        name=report.name,
        expectations=[_configuration(result) for result in results if result["expectation"] not in left_out],
        notes=[f"Not in this suite, but in the validation results: {', '.join(left_out)}"] if left_out else None,
        meta={"loopline.loop": report.loop},
    )
    return context.suites.add(suite)


def _tables(reports: Iterable[_Report], workspace: Workspace) -> dict[str, Path]:
    """Return the tables of projects and stages that lie on this machine, by their names."""
    folders = workspace.folders()
    data = {name: Project(workspace, folder).data for name, folder in folders.items()}
    tables = {report.name: data[report.project] / STAGES[report.stage] for report in reports if report.project in data}
    return {name: table for name, table in tables.items() if table.is_file()}


def _write_checkpoints(context: Any, tables: Mapping[str, Path], suites: Mapping[str, Any]) -> None:
    """Write what runs suites on tables: all assets at once, since each change writes the whole configuration."""
    gx = library()
    assets = [
        {"name": name, "type": "parquet", "path": str(table), "batch_definitions": [{"name": BATCH}]}
        for name, table in tables.items()
    ]
    source = context.data_sources.add_pandas(name=SOURCE, assets=assets)
    for name in tables:
        batch = source.get_asset(name).get_batch_definition(BATCH)
        definition = gx.ValidationDefinition(name=name, data=batch, suite=suites[name])
        definitions = [context.validation_definitions.add(definition)]
        context.checkpoints.add(gx.Checkpoint(name=name, validation_definitions=definitions))


def _write_result(context: Any, report: _Report) -> None:
    """Write a report as a validation result, under the loop's id and the time of the validation.

    As Great Expectations has it, a failed check counts as not met whatever its severity; Loopline's own outcome is in
    the notes (`meta`).
    """
    gx = library()
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.data_context.types.resource_identifiers import ValidationResultIdentifier

    results = [_result(result, report.content["rows"]) for result in report.content["results"]]
    num_met = sum(result.success for result in results)
    run_id = gx.RunIdentifier(run_name=report.loop, run_time=datetime.fromisoformat(report.content["when"]))
    stored = ExpectationSuiteValidationResult(
        success=num_met == len(results),
        results=results,
        suite_name=report.name,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": num_met,
            "unsuccessful_expectations": len(results) - num_met,
            "success_percent": 100 * num_met / len(results) if results else None,
        },
        meta={
            "great_expectations_version": gx.__version__,
            "run_id": run_id.to_json_dict(),
            "validation_time": report.content["when"],
            "active_batch_definition": {"datasource_name": SOURCE, "data_asset_name": report.name},
            "loopline.loop": report.loop,
            "loopline.status": report.content["status"],
        },
    )
    suite = context.expectations_store.get_key(name=report.name)
    key = ValidationResultIdentifier(suite, run_id, f"{SOURCE}-{report.name}")
    context.validation_results_store.add(key, stored)


def _result(result: Mapping[str, Any], num_rows: int) -> Any:
    from great_expectations.core import ExpectationValidationResult

    if result["unexpected_count"] is None:
        answer = {"observed_value": result["observed"]}
    else:
        names = ("unexpected_count", "unexpected_percent")
        answer = {name: result[name] for name in names} | {"partial_unexpected_list": result["examples"]}
    return ExpectationValidationResult(
        success=result["success"],
        expectation_config=_configuration(result),
        result={"element_count": num_rows, **answer},
        exception_info={
            "raised_exception": bool(result["error"]),
            "exception_message": result["error"],
            "exception_traceback": None,
        },
    )


def _configuration(result: Mapping[str, Any]) -> Any:
    """Return what was checked; a report from before 0.3 has the columns beside the arguments."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    names = [name for name in EXPECTATIONS.get(result["expectation"], ((), ()))[0] if name in COLUMN_ARGUMENTS]
    columns = dict(zip(names, str(result["column"]).split(", ", len(names) - 1), strict=False)) if names else {}
    return ExpectationConfiguration(
        type=type_of(result["expectation"]),
        kwargs={**columns, **result["arguments"]},
        meta={"loopline.origin": result["origin"]},
        severity="critical" if result["severity"] == "reject" else "warning",
    )
