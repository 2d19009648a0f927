"""DVC, Optuna, Great Expectations and package sources: a module each."""
