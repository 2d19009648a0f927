"""Verdicts on challengers: metrics, bootstrap, gates."""
