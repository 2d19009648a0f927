"""What a server says and understands: models ready to answer, rows, protocols, the frames of its log.

Nothing here imports torch, pandas, pyarrow, a web framework or a tool of the platform: a server is small and starts
at once.
"""
