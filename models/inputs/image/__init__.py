"""Images as inputs."""
