"""Releases: versions fetched, tried, shadowed, swapped, taken back."""
