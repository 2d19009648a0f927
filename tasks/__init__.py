"""What tasks do: one module an outside system or a step of the loop."""
