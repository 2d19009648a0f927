"""Databases as sources: each kind of database is a row of `databases.py`."""
