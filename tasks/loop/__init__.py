"""The loop: step cache, outcome, history."""
