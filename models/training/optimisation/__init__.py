"""The optimisation: losses, optimisers, schedules, objectives."""
