"""Families that learn by rounds in one process: the driver of their epochs, and estimators by reference."""
