"""Prefect: server, events, runs, automations."""
