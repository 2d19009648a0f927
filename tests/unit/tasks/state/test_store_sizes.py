"""Sizes are counted once and remembered."""

from tasks.host.workspace import Workspace
from tasks.state.store_sizes import StoreSizes, measure, measured


def test_what_was_counted_is_remembered(workspace: Workspace) -> None:
    inside = workspace.state / "mlflow" / "artifacts" / "deep"
    inside.mkdir(parents=True)
    (inside / "model.onnx").write_bytes(b"x" * 1000)
    (workspace.state / "mlflow" / "mlflow.db").write_bytes(b"x" * 24)
    (inside / "loop").symlink_to(workspace.state)
    counted = measure(workspace)
    assert 1024 <= counted.stores["mlflow"] < 1200
    assert counted.stores["optuna"] == 0
    assert measured(workspace) == counted


def test_what_was_never_measured_is_empty(workspace: Workspace) -> None:
    assert measured(workspace) == StoreSizes()
