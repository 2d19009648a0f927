"""Pages and pictures that people look at."""
