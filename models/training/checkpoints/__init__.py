"""Checkpoints: written whole or not at all, read back to the bit."""
