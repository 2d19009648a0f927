"""Commands that help to use the program: its pages, the schema, the environment, and the completion of a shell."""
