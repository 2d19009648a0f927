"""Sources: any input as one Arrow table."""
