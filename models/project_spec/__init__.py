"""The spec: what one model is and how it is made, read from `project.yaml` and checked."""
