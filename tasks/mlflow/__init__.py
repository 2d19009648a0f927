"""MLflow: tracking, registry, artifacts. Only this package imports mlflow."""
