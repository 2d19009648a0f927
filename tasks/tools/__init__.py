"""DVC, Optuna, Great Expectations and package sources, one module each."""
