"""Backtests: a trigger policy played over the past."""
