"""Scaffolds: a first spec for data that has no spec yet."""
