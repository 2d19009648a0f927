"""Ready nets, one a file."""
