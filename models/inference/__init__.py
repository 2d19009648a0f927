"""Inference: a loaded model, from rows to answers."""
