"""One module an outside system that more than one step speaks to."""
