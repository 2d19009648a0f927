"""Ranks: the pool of processes that training runs on."""
