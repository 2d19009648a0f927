"""Distributed training: ranks, meshes, parallel plans, the fork server, the watchdog."""
