"""Running flows under Prefect: tasks, deployments, signals."""
