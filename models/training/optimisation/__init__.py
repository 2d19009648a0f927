"""Losses, optimisers, schedules and objectives."""
