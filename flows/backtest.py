"""The backtest as a flow, so that it can be deployed, scheduled and triggered like the loop itself."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.artifacts import create_link_artifact, create_markdown_artifact

from flows.console import reporting
from flows.console.backtesting import as_markdown, replay
from tasks.host import stores
from tasks.operations.backtest import BacktestRequest, page
from tasks.platform.report_pages import address_of


@flow(name="backtest", flow_run_name="backtest-{project}", persist_result=False)
def backtest(
    project: str,
    overrides: list[str] | None = None,
    policies: list[str] | None = None,
    begin: str | None = None,
    period: str = "month",
    label_delay: str = "0",
) -> dict[str, Any]:
    """Replay a project's past under retraining policies; the recommendation appears on the run's page.

    Args:
        project: A name under projects/, or the path of a folder with a project.yaml.
        overrides: `block.key=value` texts that override the spec.
        policies: never, monthly, decay, drift, every, spec, or YAML files; default: all but every.
        begin: Date from which to replay; earlier rows train the first champion.
        period: month, week, day or a number of rows.
        label_delay: Time between a row and its label, such as 7d.
    """
    workspace = stores.open_workspace()
    chosen = workspace.project(project)
    result = replay(
        chosen, overrides or [], BacktestRequest(policies or (), begin, period, label_delay), reporting.current()
    )
    key = result.project.replace("_", "-")
    create_markdown_artifact(as_markdown(result), key=f"{key}-backtest", description="What other policies would do")
    address = address_of(workspace, result.project, page(chosen, result.project))
    create_link_artifact(address, link_text="backtest.html", key=f"{key}-backtest-page")
    return result.model_dump(mode="json")
