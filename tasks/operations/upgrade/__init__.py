"""Upgrades: what an older workspace needs before a newer version may use it."""
