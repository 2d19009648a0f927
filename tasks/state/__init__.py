"""State of one project: outbox, logs, labels, monitoring counters."""
