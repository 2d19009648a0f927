"""Flows under Prefect: tasks, deployments, signal handling."""
