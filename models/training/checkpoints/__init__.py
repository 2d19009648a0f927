"""Checkpoints: written atomically, restored with the same bits."""
