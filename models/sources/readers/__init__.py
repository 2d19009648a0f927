"""Readers of formats that other tools write."""
