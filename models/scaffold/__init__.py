"""Scaffolds: a first spec for data that nobody has described yet."""
