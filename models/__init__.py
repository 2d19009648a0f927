"""What models know: pure code on data, nets, training, verdicts. No Prefect, MLflow, DVC, environment or clock."""
