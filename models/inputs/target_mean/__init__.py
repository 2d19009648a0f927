"""Means of the target by categories of many levels, as inputs."""
