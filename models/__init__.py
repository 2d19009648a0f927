"""Pure code for data, nets, training and verdicts: no Prefect, MLflow, DVC, environment variables or clock."""
