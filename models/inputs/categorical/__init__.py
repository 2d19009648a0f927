"""Columns of categories as inputs."""
