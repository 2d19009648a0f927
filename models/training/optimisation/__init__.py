"""The optimisation: losses, optimisers, schedules."""
