"""Commands that keep a workspace in order: its check, its clean-up, its databases."""
