"""Prefect flows and the command line: the order in which steps run."""
