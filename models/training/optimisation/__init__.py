"""What is minimised and how: losses, optimisers, schedules, objectives."""
