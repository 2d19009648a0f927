"""The commands of the `loopline` program, one a file, imported when called."""
