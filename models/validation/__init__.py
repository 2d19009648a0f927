"""Data validation: expectations, label checks, warnings."""
