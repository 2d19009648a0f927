"""Triggers: signals, the policy that decides about them, and overrides."""
