"""What the glue costs, against the same compute in bare scripts: `make bench`. Measured, never asserted."""
