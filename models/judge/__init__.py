"""Judging: metrics, bootstrap, verdicts."""
