"""Whether a column has no value, as an input."""
