"""The pipeline: its steps, the key of each, and the record that a step leaves."""
