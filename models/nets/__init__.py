"""The built-in nets, one per file, and how users' nets are built and adapted."""
