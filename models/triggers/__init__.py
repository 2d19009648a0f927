"""Triggers: signals, the policy that weighs them, and overrides."""
