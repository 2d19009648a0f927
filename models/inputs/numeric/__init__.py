"""Columns of numbers as inputs."""
