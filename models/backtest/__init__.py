"""Backtests: replays of the past under a trigger policy."""
