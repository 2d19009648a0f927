"""Pages that make a project and change its spec."""
