"""Exports a loop's outbox to MLflow: in order, in batches, idempotently; lines that cannot be sent now wait."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import LeaseLostError, StoreError
from models.serving.registry import UNRECORDED
from tasks.host import processes, stores
from tasks.host.carrying import WAIT_S, carrying
from tasks.host.workspace import Workspace
from tasks.mlflow.client import client, reaching_store
from tasks.mlflow.embedded_store import open_client
from tasks.mlflow.garbage import logged_model_of
from tasks.mlflow.lost_store import refuse_lost
from tasks.mlflow.projection import Target, call_of, project
from tasks.state import step_store
from tasks.state.outbox import PAGE_ONLY, Delivered, Outbox, delivered, set_delivered

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUN_KEY = "loopline.run_key"
LOG = logging.getLogger("loopline")
INTERVAL_S = 2.0


class MlflowExporter:
    """Delivers the outbox of one loop."""

    def __init__(self, workspace: Workspace, project: str, loop_id: str) -> None:
        self._workspace = workspace
        self._project = project
        self._loop_id = loop_id
        self._state = workspace.state / "projects" / project
        self._outbox = Outbox(self._state, loop_id)
        self._lock = threading.Lock()
        self._runs = delivered(self._state, loop_id).runs

    def run_id(self, run: str) -> str | None:
        """Return MLflow's id of a run of this loop; None until it is delivered."""
        return self._runs.get(run)

    def deliver(self, timeout_s: float = WAIT_S) -> None:
        """Deliver all waiting lines, as the only process that delivers lines of this project.

        Args:
            timeout_s: Time to wait for another process, in seconds.

        Raises:
            StoreError: The store is away, or another process delivers; nothing is lost, call again later.
        """
        with self._lock:
            number, self._runs = delivered(self._state, self._loop_id)
            if not self._outbox.lines(number):
                return
            with carrying(self._workspace, "mlflow-runs", self._project, timeout_s) as lease:
                number, self._runs = delivered(self._state, self._loop_id)  # another process may have been first
                if not (lines := self._outbox.lines(number)):
                    return
                with reaching_store():
                    store = open_client(self._workspace)
                    experiment = experiment_id(store, self._workspace, self._project)
                    sent = [line for line in lines.values() if line["op"] not in PAGE_ONLY]
                    for (op, run), group in itertools.groupby(
                        sent, key=lambda line: (call_of(line["op"]), line["run"])
                    ):
                        self._carry(store, experiment, op, run, list(group))
                try:
                    set_delivered(self._state, self._loop_id, Delivered(max(lines), self._runs), lease)
                except LeaseLostError:
                    self._mark_unrecorded(store)
                    raise

    def _mark_unrecorded(self, store: MlflowClient) -> None:
        """Tag the runs that this process made while it was paused and another one delivered into runs of its own."""
        recorded = delivered(self._state, self._loop_id).runs
        with reaching_store():
            for run, run_id in self._runs.items():
                if recorded.get(run, run_id) != run_id:
                    store.set_tag(run_id, UNRECORDED, "{host}:{pid}".format(**processes.identity()))

    def _carry(self, store: MlflowClient, experiment: str, op: str, run: str, lines: list[dict[str, Any]]) -> None:
        if op == "run":
            self._begin(store, experiment, lines[0])
            return
        if op == "artifact":
            lines = [{**line, "path": str(self._fetched(self._workspace.root / line["path"]))} for line in lines]
        run_id = self._runs.get(run)
        target = Target(store, experiment, run_id, self._outbox.lines) if run_id else None
        refused = project(target, lines) if target else [f"the run {run} never began"]
        for reason in refused:
            LOG.warning("%s: MLflow refused %s of %s, left out: %s", self._loop_id, op, run, reason)

    def _fetched(self, path: Path) -> Path:
        """Return the path of an artifact; a file that another machine has written is fetched from the object store."""
        if not path.exists():
            step_store.fetch_file(self._state, self._workspace.root, path)
        return path

    def _begin(self, store: MlflowClient, experiment: str, line: dict[str, Any]) -> None:
        run = line["run"]
        key = f"{self._loop_id}/{run}"
        run_id = _usable_run(store, self._runs.get(run)) or _find_run(store, experiment, key)
        if run_id:
            store.update_run(run_id, status="RUNNING")
        else:
            tags = {**line["tags"], RUN_KEY: key}
            if line["parent"] in self._runs:
                tags["mlflow.parentRunId"] = self._runs[line["parent"]]
            created = store.create_run(experiment, start_time=line["at_ms"], tags=tags, run_name=line["name"])
            run_id = created.info.run_id
        self._runs[run] = run_id


def log_version_metrics(model: str, version: str, batches: Mapping[int, tuple[float, Mapping[str, float]]]) -> None:
    """Log metrics of a version on its run and its model, one batch per step.

    Args:
        model: The registered model.
        version: The version.
        batches: Step -> Unix time and metrics.

    Raises:
        StoreError: The store is away: log them again later.
    """
    with reaching_store():
        from mlflow.entities import Metric

        store = client()
        model_version = store.get_model_version(model, version)
        if not model_version.run_id:
            raise StoreError(
                f"{model} version {version} has no run to log metrics on: promote one that `loopline run` registered"
            )
        linked: dict[str, Any] = {"model_id": model_id} if (model_id := logged_model_of(model_version)) else {}
        for step, (logged_at, metrics) in batches.items():
            batch = [Metric(name, value, int(logged_at * 1000), step, **linked) for name, value in metrics.items()]
            store.log_batch(model_version.run_id, metrics=batch)


def experiment_id(store: MlflowClient, workspace: Workspace, project: str) -> str:
    """Return the project's experiment id; the experiment is created at first use.

    Raises:
        StoreError: The store has lost the project's data.
    """
    experiment = store.get_experiment_by_name(project)
    if experiment:
        return str(experiment.experiment_id)
    refuse_lost(workspace, project)
    uri = os.environ["MLFLOW_TRACKING_URI"]
    location = stores.artifact_address(workspace, uri)
    try:
        return str(store.create_experiment(project, artifact_location=location and f"{location}/{project}"))
    except Exception:
        experiment = store.get_experiment_by_name(project)  # another loop was first
        if experiment:
            return str(experiment.experiment_id)
        raise


def _usable_run(store: MlflowClient, run_id: str | None) -> str | None:
    """Return the id of an earlier run; restore it if a person deleted it. Return None if it no longer exists.

    MLflow refuses every change of a deleted run, and later lines of the outbox would wait for ever.
    """
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        run = store.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    if run.info.lifecycle_stage == "deleted":
        store.restore_run(run_id)
        LOG.warning("%s: was deleted in MLflow; restored, because its loop continues", run.info.run_name)
    return run_id


def _find_run(store: MlflowClient, experiment: str, key: str) -> str | None:
    runs = store.search_runs([experiment], f"tags.`{RUN_KEY}` = '{key}'", max_results=1)
    return str(runs[0].info.run_id) if runs else None


class BackgroundExporter:
    """Delivers in the background while a loop runs, so that MLflow's UI is current; waits while the store is away.

    Args:
        delivery: Of the loop that runs.
        earlier: Of the project's ended loops, whose logs wait: delivered once, after the running loop's.
    """

    def __init__(self, delivery: MlflowExporter, earlier: Sequence[MlflowExporter] = ()) -> None:
        self._delivery = delivery
        self._earlier = [*earlier]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loopline-delivery", daemon=True)
        self.trouble: StoreError | None = None

    def start(self) -> None:
        """Start the thread, which also imports MLflow in parallel to the loop's own work."""
        self._thread.start()

    def finish(self) -> StoreError | None:
        """Deliver the rest; return the error if the store is away."""
        self._stop.set()
        self._thread.join()
        self._attempt()
        return self.trouble

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._attempt()

    def _attempt(self) -> None:
        try:
            self._delivery.deliver()
            while self._earlier:
                self._earlier[0].deliver()
                del self._earlier[0]
            self.trouble = None
        except StoreError as error:
            self.trouble = error
