"""Columns of dates and times as inputs."""
