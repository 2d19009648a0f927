"""Normal scores of numbers with heavy tails, as inputs."""
