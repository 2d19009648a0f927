"""Scaffolds: a first spec for new data."""
