"""Where the product acts under a lease, and where the tests of time pause it there.

`test_points.py` compares this table with the product: an act under a lease that is new, moved or gone changes it.
"""

from __future__ import annotations

from typing import NamedTuple

CONFIRMED = "tasks.host.leases:Lease.confirm"
WRITTEN = "tasks.host.database:writing"


class Point(NamedTuple):
    """A place in the product where a process acts because it holds a lease.

    Args:
        file: The file of the act.
        function: The qualified name of the function there that asks for the lease.
        call: How it asks: `check` in its transaction, `confirm` before an act in another store, or `leased`; empty for
            a further moment after it has asked.
        target: The function, `module:name`, at which the process pauses while `function` has called it; a transaction
            only if it has called it itself.
        moment: Whether it pauses `before` the target or `after` it.
        reason: Why no test pauses it there; empty if one does.
    """

    file: str
    function: str
    call: str
    target: str = ""
    moment: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """A short name, for the tests' ids and for what a paused process prints."""
        return f"{self.file.rpartition('/')[2].removesuffix('.py')}.{self.function}"


def _checked(file: str, function: str) -> Point:
    """An act whose transaction checks the lease: the process pauses before the transaction."""
    return Point(file, function, "check", WRITTEN, "before")


def _confirmed(file: str, function: str) -> Point:
    """An act in another store: the process pauses when it has just been told that it holds the lease."""
    return Point(file, function, "confirm", CONFIRMED, "after")


def _passed_over(file: str, function: str, call: str, reason: str) -> Point:
    """An act at which no test pauses a process, and why."""
    return Point(file, function, call, reason=reason)


STEP = _checked("tasks/loop/history.py", "save_step")
LOOP = _checked("tasks/loop/history.py", "save_loop")
RECORD = _checked("tasks/state/step_records.py", "StepRecords.save")
LINE = _checked("tasks/state/outbox.py", "Outbox._write")
ENDED = _checked("tasks/loop/history.py", "record_loop")
REGISTER = _confirmed("tasks/steps/register.py", "register.<locals>.act")
PROMOTE = Point(
    "tasks/steps/promote.py", "promote.<locals>.act", "check", "tasks.mlflow.registry:Registry.promote", "before"
)
TRIAL = _confirmed("tasks/steps/search.py", "_Search._one")
JUDGE = _checked("tasks/mlflow/registry.py", "Registry.judge")
CREATE = Point("tasks/mlflow/registry.py", "Registry.create", "", "mlflow:MlflowClient.create_model_version", "before")
DELIVER = Point("tasks/mlflow/delivery.py", "MlflowExporter._begin", "", "mlflow:MlflowClient.create_run", "before")
END = _confirmed("tasks/loop/lifecycle.py", "_end")
UPLOAD = _confirmed("tasks/loop/job_uploads.py", "_Uploader._upload")
FORGET = _passed_over(
    "tasks/loop/lifecycle.py",
    "_forget",
    "confirm",
    "it deletes what nobody used for days: tests/unit/tasks/state/test_snapshots.py has two writers there",
)
REAP = Point("tasks/operations/reap.py", "_project", "leased", "tasks.host.leases:_take", "before")
REAPED = Point("tasks/operations/reap.py", "reap", "", "tasks.operations.reap:conclude_killed", "before")
REAP_TRIALS = _confirmed("tasks/operations/reap.py", "_studies")
STUDY = _passed_over(
    "tasks/steps/search.py",
    "_Search._open_study",
    "confirm",
    "it hands the question on: in tests/integration/test_optuna_study.py another machine draws a trial there",
)
STUDIES = _passed_over(
    "tasks/steps/search.py", "search.<locals>.act", "confirm", "it asks who has the loop when an act has failed"
)
MOVE = Point("tasks/mlflow/registry.py", "Registry.move", "", WRITTEN, "before")
CARRIER_AGAIN = _passed_over(
    "tasks/mlflow/carrier.py", "Carrier.carry", "leased", "a carrier that lost its lease takes it again after CARRY"
)
CARRIER = Point("tasks/host/carrying.py", "carrying", "leased", "tasks.host.leases:_take", "after")
CARRY = Point(
    "tasks/mlflow/carrier.py", "Carrier._carried", "", "mlflow:MlflowClient.set_registered_model_alias", "before"
)
TAKEN_OVER = _passed_over(
    "tasks/mlflow/carrier.py",
    "Carrier._is_taken_over",
    "check",
    "a carrier asks it after CARRY, where a test pauses it",
)
DELIVERED = _checked("tasks/state/outbox.py", "set_delivered")
WEIGH = Point("tasks/operations/retrain.py", "weigh", "", "tasks.host.database:current_time", "after")
DECIDE = Point("tasks/loop/decisions.py", "record_next", "", WRITTEN, "before")
CARRY_AGAIN = _passed_over(
    "tasks/mlflow/carrier.py", "Carrier.carry", "leased", "the carrier that CARRY pauses comes here when it goes on"
)
CLUSTER_JOB = _passed_over(
    "tasks/loop/jobs.py",
    "job_owner",
    "confirm",
    "it hands the question on: the launcher's unit tests lose the lease before each act on a job, and after the check",
)
HANDED_ON = _passed_over(
    "tasks/loop/loop.py", "Loop.confirm", "confirm", "it hands the question on: the steps that ask are points"
)
HANDED_ON_CHECK = _passed_over(
    "tasks/loop/loop.py", "Loop.check", "check", "it hands the question on: the steps that ask are points"
)
WHOLE_LOOP = _passed_over(
    "tasks/loop/lifecycle.py", "_only_loop", "leased", "the acts of the loop that holds this lease are points"
)
OFFLINE_RUNS = _passed_over(
    "tasks/platform/open_signals.py",
    "_of_lost_machines",
    "leased",
    "a run that two machines schedule again is one run, and only one of its processes gets the loop's lease",
)
GARBAGE = _passed_over(
    "tasks/operations/collect_garbage.py",
    "delete",
    "leased",
    "two collections at once remove the same: each asks for the project's lease where it removes",
)
GARBAGE_PROJECT = _passed_over(
    "tasks/operations/collect_garbage.py",
    "_alone",
    "leased",
    "the act of the collection that holds this lease is GARBAGE_ROWS",
)
GARBAGE_ROWS = _passed_over(
    "tasks/gc/collect.py",
    "_withdrawn",
    "check",
    "its transaction also looks whether anything came since it listed: its unit tests let a loop come there",
)
GARBAGE_OBJECTS = _passed_over(
    "tasks/gc/collect.py",
    "_withdrawn",
    "confirm",
    "it deletes what nobody used for days: the unit tests of tasks/gc/stored_files.py have another holder there",
)
POINTS = tuple(value for value in list(vars().values()) if isinstance(value, Point))
