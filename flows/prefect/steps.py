"""A step of the loop as a Prefect task: with retries where they can help, and the state `Cached` for done steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.exceptions import TerminationSignal
from prefect.states import Completed
from prefect.utilities.annotations import opaque

from flows.console.summary import publish
from models.errors import LeaseLostError, StoreError, with_causes
from models.files import lasts
from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME
from tasks.loop.loop import Loop

RETRY_DELAYS_S = [2.0, 10.0]


def step(
    act: Callable[[Loop], tuple[StepRecord, bool]], name: str, retries: int = 0, timeout_s: float | None = None
) -> Callable[[Loop], StepRecord]:
    """Return the step `act` as a task with this name; calling it returns the step's record.

    The loop's records decide whether a step is done; they check that the outputs exist with their hashes. Prefect's own
    cache is off, and a step that is already done ends in Prefect's state `Cached`.
    """

    @task(
        name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=retries,
        retry_delay_seconds=RETRY_DELAYS_S[: max(1, retries)],
        retry_condition_fn=_may_mend,
        timeout_seconds=timeout_s,
        task_run_name=name,
    )
    def run(loop: Loop, inputs: list[StepRecord]) -> Any:
        del inputs  # only for Prefect's graph of dependencies; `act` gets its inputs from the loop
        try:
            record, was_done = act(loop)
        finally:  # the page of a step that failed says why
            publish(loop, name)
        if was_done:
            return Completed(name="Cached", message=f"recorded by {record.loop_id}, outputs intact", data=record)
        return record

    def call(loop: Loop) -> StepRecord:
        with unmasked():
            # Opaque: Prefect draws the line between two tasks, and does not walk through all that a record holds.
            results = run(loop, [opaque(loop.done[before]) for before in BY_NAME[name].after])
        record: StepRecord = results.result() if isinstance(results, State) else results
        return record

    return call


@contextlib.contextmanager
def unmasked() -> Iterator[None]:
    """Raise the TerminationSignal of a SIGTERM during the begin of a task run, where Prefect raises a ValueError."""
    try:
        yield
    except ValueError as error:
        for cause in with_causes(error):
            if isinstance(cause, TerminationSignal):
                raise cause from None
        raise


async def _may_mend(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """Return whether to retry: only a StoreError can pass; a lost lease or a read-only folder stays."""
    try:
        await state.aresult()
    except StoreError as error:
        return not isinstance(error, LeaseLostError) and not lasts(error)
    except BaseException:  # noqa: BLE001 - any other failure is final
        return False
    return False
