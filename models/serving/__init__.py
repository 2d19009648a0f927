"""The protocols of a server: requests, rows, errors, releases, and the records of its log.

Nothing here imports torch, pandas, pyarrow, a web framework or a tool of the platform: a server is small and starts
at once.
"""
