"""Where MLflow's page shows a metric; the way to a real MLflow is tests/integration/test_delivery.py."""

import pytest

from tasks.mlflow.projection import metric_name_of


@pytest.mark.parametrize(
    ("name", "step", "shown"),
    [
        ("val_loss", 3, "curves/val_loss"),
        ("mlp.val_auc", 3, "curves/mlp.val_auc"),
        ("val_loss", 0, "val_loss"),
        ("test_accuracy", 0, "test_accuracy"),
        ("device_s", 3, "system/device_s"),
        ("mlp.samples_per_s", 3, "system/mlp.samples_per_s"),
        ("cost/train/flops", 0, "system/cost/train/flops"),
        ("system/cpu_utilization_percentage", 2, "system/cpu_utilization_percentage"),
        ("validation_raw_failed", 0, "data/validation_raw_failed"),
        ("variant_int8_latency_ms", 0, "export/variant_int8_latency_ms"),
    ],
)
def test_the_first_charts_are_the_curves_and_costs_are_of_the_system(name: str, step: int, shown: str) -> None:
    assert metric_name_of(name, step) == shown
