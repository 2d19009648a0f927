"""The courier and the telling of trouble; the way to a real MLflow is tests/integration/test_delivery.py."""

import time
from types import SimpleNamespace

import pytest

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.mlflow import delivery
from tasks.mlflow.delivery import BackgroundExporter, MlflowExporter
from tasks.state.outbox import Delivered, Outbox, set_delivered, undelivered


class Carrier:
    """Stands for a delivery: counts attempts and fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.attempts = 0

    def deliver(self) -> None:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise StoreError("away")


def exporter_of(carrier: Carrier) -> BackgroundExporter:
    return BackgroundExporter(carrier)  # type: ignore[arg-type]


def test_the_exporter_tries_again_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "INTERVAL_S", 0.001)
    carrier = Carrier()
    exporter = exporter_of(carrier)
    exporter.start()
    while carrier.attempts < 3:
        time.sleep(0.001)
    assert exporter.finish() is None


def test_the_last_delivery_is_made_at_the_end() -> None:
    carrier = Carrier()
    exporter = exporter_of(carrier)
    exporter.start()
    assert exporter.finish() is None
    assert carrier.attempts == 1


def test_a_store_that_is_away_is_told_and_raises_nothing() -> None:
    exporter = exporter_of(Carrier(failures=99))
    exporter.start()
    assert str(exporter.finish()) == "away"


def test_a_store_that_came_back_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "INTERVAL_S", 0.001)
    carrier = Carrier(failures=2)
    exporter = exporter_of(carrier)
    exporter.start()
    while carrier.attempts < 3:
        time.sleep(0.001)
    assert exporter.finish() is None


def test_logs_of_earlier_loops_follow_once_the_store_is_back() -> None:
    own, earlier = Carrier(failures=1), [Carrier(), Carrier(failures=1)]
    exporter = BackgroundExporter(own, earlier)  # type: ignore[arg-type]
    exporter.start()
    assert str(exporter.finish()) == "away"
    assert [carrier.attempts for carrier in earlier] == [0, 0], "the store is away for them, too"
    for trouble in ("away", None):
        assert (str(told) if (told := exporter.finish()) else None) == trouble
    assert [carrier.attempts for carrier in earlier] == [1, 2]


def test_without_a_delivery_all_waits(workspace: Workspace) -> None:
    Outbox(workspace.state / "projects" / "tiny", "l").start_run("loop", "l", {})
    made = MlflowExporter(workspace, "tiny", "l")
    assert undelivered(workspace.state / "projects" / "tiny") == ["l"]
    assert made.run_id("loop") is None


def test_what_is_delivered_is_not_pending(workspace: Workspace) -> None:
    state = workspace.state / "projects" / "tiny"
    box = Outbox(state, "l")
    box.start_run("loop", "l", {})
    set_delivered(state, "l", Delivered(max(box.lines()), {"loop": "abc"}))
    made = MlflowExporter(workspace, "tiny", "l")
    assert undelivered(workspace.state / "projects" / "tiny") == []
    assert made.run_id("loop") == "abc"
    box.end_run("loop", "FINISHED")
    assert undelivered(workspace.state / "projects" / "tiny") == ["l"]


def test_no_outbox_is_nothing_to_deliver(workspace: Workspace) -> None:
    made = MlflowExporter(workspace, "tiny", "l")
    assert undelivered(workspace.state / "projects" / "tiny") == []
    made.deliver()


@pytest.mark.parametrize(
    ("model_id", "source", "reached"),
    [
        (None, "models:/m-1", "m-1"),  # as MLflow's SQL store answers
        ("m-2", "models:/m-2", "m-2"),
        (None, "/somewhere/model", None),  # an older version has a folder
    ],
)
def test_metrics_of_a_version_reach_its_model(
    monkeypatch: pytest.MonkeyPatch, model_id: str | None, source: str, reached: str | None
) -> None:
    logged = []
    store = SimpleNamespace(
        get_model_version=lambda *_: SimpleNamespace(run_id="r", model_id=model_id, source=source),
        log_batch=lambda run, metrics: logged.extend((run, one.key, one.model_id) for one in metrics),
    )
    monkeypatch.setattr(delivery, "client", lambda: store)
    delivery.log_version_metrics("tiny", "1", {3: (1.0, {"monitor_auc": 0.7})})
    assert logged == [("r", "monitor_auc", reached)]
