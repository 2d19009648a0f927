"""The planner: estimates memory and time of parallel plans before a training starts."""
