"""The output in the terminal."""
