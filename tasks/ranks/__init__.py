"""Ranks: the pool of training processes."""
