"""Columns of texts as inputs."""
