"""The spec: the definition of one model and its training, read from `project.yaml` and checked."""
