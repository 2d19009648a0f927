"""The costs of training: time, FLOPs, memory, energy."""
