"""The host: the workspace on disk, locks, processes, ports."""
