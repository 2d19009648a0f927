"""Pure code on data, nets, training and verdicts. No Prefect, MLflow, DVC, environment or clock."""
