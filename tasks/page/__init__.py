"""The overview page: what the records, the registry and the logs of a workspace say, joined, in a browser."""
