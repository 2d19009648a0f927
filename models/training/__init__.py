"""Training: jobs, ranks, loops, checkpoints, exact resume."""
