"""How flows run under Prefect: tasks, deployments, signals."""
