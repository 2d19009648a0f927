"""Commands that help to use the program: its pages, and the completion of a shell."""
