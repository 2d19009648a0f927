"""The parts of a prediction server: loaded models, request rows, protocols, and the frames of its write-ahead log.

Nothing here imports torch, pandas, pyarrow, a web framework or a tool of the platform: a server is small and starts
at once.
"""
