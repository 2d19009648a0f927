"""Features that the spec's `data.features.fit` makes of other columns, as inputs."""
