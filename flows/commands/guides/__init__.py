"""Commands that help to use the program: its pages, the schema for editors, and the completion of a shell."""
