"""Metrics and their sampling errors."""
