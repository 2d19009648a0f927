"""The commands of the `loopline` program, one per file, imported when called."""
