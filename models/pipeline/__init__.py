"""The pipeline: its steps, their cache keys, and the records of finished steps."""
