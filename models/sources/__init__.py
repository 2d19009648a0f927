"""Sources: reads any input as one Arrow table."""
