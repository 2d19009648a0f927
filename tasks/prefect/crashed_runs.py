"""Marks flow runs whose process is gone as Crashed: Prefect itself does this only for runs of its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun


def crash_runs(ids_or_tags: Mapping[int, UUID | str]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Mark open runs that do not belong to a worker as Crashed.

    Args:
        ids_or_tags: By number, the id of a dead process's flow run, or the tag of all runs that it started.

    Yields:
        Each number with the (id, name) of the marked runs.
    """
    from prefect.client.orchestration import get_client
    from prefect.states import Crashed

    with get_client(sync_client=True) as client:
        for number, which in ids_or_tags.items():
            marked = []
            for run in _run_of(client, which) if isinstance(which, UUID) else _open_runs_with(client, which):
                if run.state is not None and not run.state.is_final() and run.deployment_id is None:
                    client.set_flow_run_state(run.id, Crashed(message="its process was killed"), force=True)
                    marked.append((str(run.id), run.name))
            yield number, marked


def _run_of(client: SyncPrefectClient, identity: UUID) -> list[FlowRun]:
    from prefect.exceptions import ObjectNotFound

    with contextlib.suppress(ObjectNotFound):
        return [client.read_flow_run(identity)]
    return []


def _open_runs_with(client: SyncPrefectClient, tag: str) -> list[FlowRun]:
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import TERMINAL_STATES

    is_open = FlowRunFilterState(type=FlowRunFilterStateType(not_any_=list(TERMINAL_STATES)))
    run_filter = FlowRunFilter(tags=FlowRunFilterTags(all_=[tag]), state=is_open)
    runs: list[FlowRun] = client.read_flow_runs(flow_run_filter=run_filter)
    return runs
