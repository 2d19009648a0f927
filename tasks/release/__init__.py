"""Releases: download, smoke test, shadow, swap and rollback of versions."""
