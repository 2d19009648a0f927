"""When a model is trained again: signals, the policy that weighs them, and the past replayed under other policies."""
