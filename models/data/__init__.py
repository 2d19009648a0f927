"""Data: sources, reading, cleaning, splits, preparation, tensors."""
